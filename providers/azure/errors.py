"""Azure's errors -> the six that the core understands.

Codes are those of the documentation, "Troubleshoot common Azure deployment errors" and "Allocation failures". They
come at once (409, 400) or in a failed operation that itself answers 200, so the code decides, not the status. A
launch is definite only where Azure said so; any other answer (5xx, none, one that is cut) may hide a machine.
"""

from __future__ import annotations

from typing import Any

from providers.base import (
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)
from providers.retry import Throttled

NO_CAPACITY = frozenset(
    {
        "AllocationFailed",
        "CapacityNotAvailable",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable",
        "SubnetIsFull",
        "ZonalAllocationFailed",
        "ZoneNotAvailable",
    }
)
QUOTA = frozenset({"QuotaExceeded", "ResourceQuotaExceeded", "CoreQuotaExceeded", "PublicIPCountLimitReached"})
THROTTLED = frozenset(
    {
        "AnotherOperationInProgress",
        "ResourceCollectionRequestsThrottled",
        "RetryableError",
        "RetryableErrorDueToAnotherOperation",
        "SubscriptionRequestsThrottled",
        "TooManyRequests",
    }
)
UNAUTHORIZED = frozenset(
    {
        "AuthenticationFailed",
        "AuthorizationFailed",
        "DisabledSubscription",
        "ExpiredAuthenticationToken",
        "InvalidAuthenticationToken",
        "InvalidSubscriptionId",
        "LinkedAuthorizationFailed",
        "MissingSubscriptionRegistration",
        "ReadOnlyDisabledSubscription",
        "SubscriptionNotFound",
        "SubscriptionNotRegistered",
    }
)
NOT_SETTLED = frozenset(
    {
        "InternalExecutionError",
        "InternalOperationError",
        "InternalServerError",
        "NetworkingInternalOperationError",
        "OperationPreempted",
        "OSProvisioningInternalError",  # these two: the machine is there and costs
        "OSProvisioningTimedOut",
        "ServerTimeout",
    }
)
STILL_HELD = frozenset(
    {"NicInUse", "NicReservedForAnotherVm", "OperationNotAllowed", "PublicIPAddressCannotBeDeleted", "InUseByVm"}
)
"""Why a leftover cannot go yet. The next inventory lists it again."""


class NameExists(ProviderError):
    """A machine of that name is there already: ours from an earlier call, or somebody's."""


class Absent(Refused):
    """The resource is not there."""


def of_code(code: str, message: str, where: str) -> ProviderError | None:
    """The error of one code; None where it is not listed here."""
    text = f"{where}: {code}: {message}"
    if code == "OperationNotAllowed" and "quota" in message.casefold():
        return QuotaExceeded(text)
    for codes, kind in (
        (NO_CAPACITY, NoCapacity),
        (QUOTA, QuotaExceeded),
        (THROTTLED, Transient),
        (UNAUTHORIZED, Unauthorized),
    ):
        if code in codes:
            return kind(text)
    return None


def of_operation(code: str, message: str, where: str) -> ProviderError:
    """Why a machine's creation failed. A fault of Azure's own is unknown: the inventory tells what is left."""
    if not code or code in NOT_SETTLED:
        return OutcomeUnknown(f"{where}: {code or 'the operation failed'}: {message}")
    return of_code(code, message, where) or Refused(f"{where}: {code}: {message}")


def code_of(error: Any) -> tuple[str, str]:
    """Code and message of an error body, `{"error": {"code", "message"}}`; empty where there is none."""
    try:
        body = error.response.json()
        said = body.get("error") or body
        return str(said.get("code") or ""), str(said.get("message") or "")
    except Exception:  # no response, one that was not read, one that is not JSON
        return "", str(error)


def translate(error: Exception, where: str, *, launching: bool = False) -> ProviderError:
    """The error that says what to do next. `where` names account and place for the operator.

    `error` is what the SDK raised. Anything else is a bug, and is unknown or transient all the same: a launch
    never looks definite by accident.
    """
    from azure.core import exceptions as azure

    if isinstance(error, ProviderError):
        return error
    text = f"{where}: {error}"
    if isinstance(error, azure.HttpResponseError) and error.response is not None:
        return _of_answer(error, where, launching)
    if isinstance(error, azure.ClientAuthenticationError):
        return Unauthorized(text)  # no token came about, so nothing was sent
    if isinstance(error, azure.ServiceRequestError) and _never_connected(error):
        return Transient(text)
    return OutcomeUnknown(text) if launching else Transient(text)


def _of_answer(error: Any, where: str, launching: bool) -> ProviderError:
    status, (code, message) = int(error.status_code or 0), code_of(error)
    text = f"{where}: {code or status}: {message}"
    if status == 429:
        return Throttled(text, _retry_after_ms(error.response.headers))
    if status == 412:
        return NameExists(text)
    if (known := of_code(code, message, where)) is not None:
        return known
    if status == 401 or (status == 403 and not code.startswith("RequestDisallowed")):
        return Unauthorized(text)
    if status == 404:
        return Absent(text)
    if 400 <= status < 500 and status != 408 and code not in NOT_SETTLED:
        return Refused(text)
    return OutcomeUnknown(text) if launching else Transient(text)


def _retry_after_ms(headers: Any) -> int:
    value = str(headers.get("Retry-After") or "")
    return int(value) * 1000 if value.isdigit() else 0


def _never_connected(error: Any) -> bool:
    """Whether the connection did not come about. Any other cut may come after the request was taken."""
    import aiohttp
    from azure.core.exceptions import ServiceRequestTimeoutError

    return isinstance(error, ServiceRequestTimeoutError) or isinstance(
        error.inner_exception, aiohttp.ClientConnectorError
    )
