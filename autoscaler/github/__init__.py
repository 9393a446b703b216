"""What GitHub is asked and told: registrations, queued runs and deliveries, by several Apps within their budgets.

Belongs here: the client, the choice of an App for each call, GitHub's errors and the shape of its answers.

Never here: what GitHub sends of its own accord (`http.webhook`), and what to do about an answer.
"""
