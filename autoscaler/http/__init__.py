"""The listening side: GitHub's deliveries, machines' calls, `/api/v1`, the stream and the dashboard.

Belongs here: requests, their limits and rights, and the answers' status codes.

Never here: decisions, and the documents that are answered (`views`).
"""
