"""Amazon EC2.

`settings` says what the account must already have, `request` makes one launch of a spec, `client` sends calls from
threads, `errors` maps EC2's errors onto the core's, `catalogue` is the bundled price list, `check` tries
permissions, and `provider` is the adapter.
"""

from providers.aws.provider import KIND, Aws
from providers.aws.settings import AwsSettings

__all__ = ["KIND", "Aws", "AwsSettings"]
