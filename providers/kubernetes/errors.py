"""The Kubernetes API's errors -> the six that the core understands.

A failed call answers with a `Status` (API reference, "Status v1 meta"): `code`, `reason`, `message`. Admission has
no reasons of its own: quota, limit ranges and pod security answer 403 Forbidden and differ by their text, which is
that of the plugins in kubernetes/kubernetes (`plugin/pkg/admission`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import aiohttp

from providers.base import OutcomeUnknown, ProviderError, QuotaExceeded, Refused, Transient, Unauthorized
from providers.retry import Throttled
from scheduling.model import DurationMs

QUOTA = re.compile(r"exceeded quota:|insufficient quota to match these scopes")
ADMISSION = re.compile(
    r"violates PodSecurity"
    r"|failed quota:"  # a quota wants a request or limit that the pod does not state
    r"|(maximum|minimum) [\w/.-]+ usage per"  # LimitRange
    r"|admission webhook .* denied the request"
    r"|error looking up service account"
    r"|no PriorityClass with name"
    r"|because it is being terminated"  # the namespace
)


class Expired(ProviderError):
    """A list or watch from a state that the server no longer knows: begin anew, asking again does not help."""


@dataclass
class ApiError(Exception):
    """The API server answered with a failure."""

    status: int
    reason: str  # `AlreadyExists`, `Conflict`, `Expired`, ...; empty when the body was no Status
    message: str
    retry_after_ms: DurationMs = 0  # named with 429 and some 5xx

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}".replace(" :", ":")


def translate(error: Exception, where: str, *, launching: bool = False) -> ProviderError:
    """The error that says what to do next. `where` names the account and the call for the operator.

    `error` is an `ApiError` or what the client raised without an answer. While `launching`, only an answer that
    certainly made nothing is definite: a server that failed half-way (5xx) may have stored the pod.
    """
    text = f"{where}: {error or type(error).__name__}"
    if isinstance(error, ApiError):
        return _answered(error, text, launching)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Unauthorized(f"{text} (the certificate authority in the kubeconfig does not match)")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Transient(text)  # no connection came about, so nothing was sent
    return OutcomeUnknown(text) if launching else Transient(text)


def _answered(error: ApiError, text: str, launching: bool) -> ProviderError:
    if error.status == 429:
        return Throttled(text, error.retry_after_ms)
    if error.status == 401:
        return Unauthorized(text)
    if error.status == 403:
        if QUOTA.search(error.message):
            return QuotaExceeded(text)
        return Refused(text) if ADMISSION.search(error.message) else Unauthorized(text)
    if error.status == 410 and not launching:
        return Expired(text)
    if error.status == 409:
        return Transient(text)  # a concurrent write, for example of the quota: nothing was stored
    if 400 <= error.status < 500 and error.status not in (408, 410):
        return Refused(text)
    return OutcomeUnknown(text) if launching else Transient(text)
