"""Google Compute Engine.

`settings` says what the project must already have, `request` makes one instance of a spec, `labels` carries tags
in labels, `client` sends calls from threads and waits for operations, `errors` maps Google's errors onto the
core's, `startup` is the program of machines without cloud-init, and `provider` is the adapter.
"""

from providers.gcp.provider import KIND, Gcp
from providers.gcp.settings import GcpSettings

__all__ = ["KIND", "Gcp", "GcpSettings"]
