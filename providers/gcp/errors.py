"""Compute Engine's errors -> the six that the core understands.

Reasons are those of the API's error bodies (`error.errors[].reason`), codes those inside operations
(`error.errors[].code`): Compute Engine documentation, "Troubleshooting VM creation" and "API rate limits". A
launch is definite only where Google said so; any other answer (5xx, none, one that is cut) may hide a machine.
"""

from __future__ import annotations

from collections.abc import Iterable
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

NO_CAPACITY = frozenset(
    {
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "REGION_RESOURCE_POOL_EXHAUSTED",
        "STOCKOUT",
        "IP_SPACE_EXHAUSTED",  # the subnetwork, so the region, is full
        "IP_SPACE_EXHAUSTED_WITH_DETAILS",
    }
)
QUOTA = frozenset({"QUOTA_EXCEEDED", "LIMIT_EXCEEDED", "quotaExceeded", "limitExceeded"})
THROTTLED = frozenset(
    {
        "RATE_LIMIT_EXCEEDED",
        "OPERATION_RATE_EXCEEDED",
        "RESOURCE_OPERATION_RATE_EXCEEDED",
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "concurrentLimitExceeded",
    }
)
UNAUTHORIZED = frozenset(
    {
        "PERMISSIONS_ERROR",
        "FORBIDDEN",
        "accessNotConfigured",
        "billingNotEnabled",
        "forbidden",
        "insufficientPermissions",
        "required",  # no credentials in the request
        "authError",
    }
)
EXISTS = frozenset({"RESOURCE_ALREADY_EXISTS", "alreadyExists", "duplicate"})
NOT_SETTLED = frozenset({"INTERNAL_ERROR", "BACKEND_ERROR", "TIMEOUT", "RESOURCE_NOT_READY", "resourceNotReady"})

NEVER_CONNECTED = frozenset({"ConnectTimeout", "ConnectTimeoutError", "NameResolutionError", "NewConnectionError"})
"""Classes of requests and urllib3, by name: both come with the SDK and are no dependencies of ours."""


class NameExists(ProviderError):
    """A resource of that name is there already: ours from an earlier call, or somebody's."""


class Absent(Refused):
    """The resource is not there."""


def of_code(code: str, text: str) -> ProviderError | None:
    """The error of one reason or code; None where it is not listed here."""
    for codes, kind in (
        (NO_CAPACITY, NoCapacity),
        (QUOTA, QuotaExceeded),
        (THROTTLED, Transient),
        (EXISTS, NameExists),
        (UNAUTHORIZED, Unauthorized),
    ):
        if code in codes:
            return kind(text)
    return None


def of_operation(errors: Iterable[Any], where: str) -> ProviderError:
    """Why an operation of a launch ended without a machine. `errors` have `code` and `message`.

    A fault of Google's own is unknown: the inventory tells whether a machine is left.
    """
    found = [(error.code, f"{where}: {error.code}: {error.message}") for error in errors]
    for code, text in found:
        if (known := of_code(code, text)) is not None:
            return known
        if code in NOT_SETTLED:
            return OutcomeUnknown(text)
    return Refused(found[0][1]) if found else OutcomeUnknown(f"{where}: the operation failed and does not say why")


def translate(error: Exception, where: str, *, launching: bool = False) -> ProviderError:
    """The error that says what to do next. `where` names account and place for the operator.

    `error` is what the SDK raised. Anything else is a bug, and is unknown or transient all the same: a launch
    never looks definite by accident.
    """
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    if isinstance(error, ProviderError):
        return error
    text = f"{where}: {error}"
    if isinstance(error, api.GoogleAPICallError):
        return _of_answer(error, text, launching)
    if isinstance(error, auth.TransportError):
        return Transient(text)  # no token came about, so nothing was sent
    if isinstance(error, auth.GoogleAuthError):
        return Unauthorized(text)
    if _never_connected(error):
        return Transient(text)
    return OutcomeUnknown(text) if launching else Transient(text)


def _of_answer(error: Any, text: str, launching: bool) -> ProviderError:
    status = int(error.code or 0)
    for reason in (str(each.get("reason", "")) for each in error.errors if isinstance(each, dict)):
        if (known := of_code(reason, text)) is not None:
            return known
        if reason in NOT_SETTLED:
            return OutcomeUnknown(text) if launching else Transient(text)
    if status == 404:
        return Absent(text)
    if status == 429:
        return Transient(text)
    if status in (401, 403):
        return Unauthorized(text)
    if status == 409:
        return NameExists(text)
    if 400 <= status < 500:
        return Refused(text)
    return OutcomeUnknown(text) if launching else Transient(text)


def _never_connected(error: BaseException) -> bool:
    """Whether the connection did not come about. The SDK's HTTP library wraps its own library's reason."""
    names = {type(error).__name__}
    if error.args:
        names |= {type(error.args[0]).__name__, type(getattr(error.args[0], "reason", None)).__name__}
    return not names.isdisjoint(NEVER_CONNECTED)
