"""EC2's errors -> the six that the core understands.

Codes are those of the EC2 API reference, "Error codes for the Amazon EC2 API". A launch is definite only where EC2
said so: a client error, or throttling. Any other answer (5xx, none, one that is cut) may hide a machine.
"""

from __future__ import annotations

from providers.base import (
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)

NO_CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "InsufficientAddressCapacity",
        "InsufficientFreeAddressesInSubnet",  # the subnet, so the zone, is full
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
    }
)
THROTTLED = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "EC2ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "BandwidthLimitExceeded",
        "SlowDown",
    }
)
UNAUTHORIZED = frozenset(
    {
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",  # also a clock that is minutes off
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
APPLIED_EARLIER = {
    "IdempotentParameterMismatch": "an earlier call of this launch was applied with other parameters",
    "IdempotentInstanceTerminated": "an earlier call of this launch was applied and its machine has ended",
}


def code_of(error: BaseException | None) -> str:
    """EC2's error code; empty when EC2 did not answer."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def translate(error: Exception, where: str, *, launching: bool = False) -> ProviderError:
    """The error that says what to do next. `where` names account and region for the operator.

    `error` is what boto3 raised. Anything else is a bug, and is unknown or transient all the same: a launch never
    looks definite by accident.
    """
    from botocore import exceptions as boto

    code = code_of(error)
    text = f"{where}: {error}"
    if code in THROTTLED:
        return Transient(text)
    if code in NO_CAPACITY:
        return NoCapacity(text)
    if code.endswith(("LimitExceeded", "CountExceeded")):
        return QuotaExceeded(text)
    if code in UNAUTHORIZED:
        return Unauthorized(text)
    if launching and code in APPLIED_EARLIER:
        return OutcomeUnknown(f"{text} ({APPLIED_EARLIER[code]})")
    if isinstance(error, boto.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if 400 <= status < 500:
            return Refused(text)
    elif isinstance(error, _no_credentials()):
        return Unauthorized(text)
    elif isinstance(error, (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)):
        return Transient(text)  # no connection came about, so nothing was sent
    elif isinstance(error, boto.ParamValidationError):
        return Refused(text)
    return OutcomeUnknown(text) if launching else Transient(text)


def _no_credentials() -> tuple[type[Exception], ...]:
    """What boto3 raises before it sends anything, when it has no credentials to sign with."""
    from botocore import exceptions as boto

    return (
        boto.NoCredentialsError,
        boto.PartialCredentialsError,
        boto.CredentialRetrievalError,
        boto.TokenRetrievalError,
        boto.SSOError,
        boto.ProfileNotFound,
        boto.ConfigParseError,
        boto.MetadataRetrievalError,
    )
