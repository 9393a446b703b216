"""Azure virtual machines.

`settings` says what the subscription must already have, `request` makes one machine of a spec, `client` sends
calls and waits for operations, `errors` maps Azure's errors onto the core's, `leftovers` finds what outlived a
machine, and `provider` is the adapter.
"""

from providers.azure.provider import KIND, Azure
from providers.azure.settings import AzureSettings

__all__ = ["KIND", "Azure", "AzureSettings"]
