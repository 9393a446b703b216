"""The API server's failures and aiohttp's exceptions, each with what the core does next."""

from __future__ import annotations

import aiohttp
import pytest

from providers.base import (
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)
from providers.kubernetes.errors import ApiError, Expired, translate


@pytest.mark.parametrize(
    ("status", "reason", "message", "launch", "read"),
    [
        # K7: quotas, admission and bad requests; texts as kubernetes/kubernetes writes them
        (
            403,
            "Forbidden",
            'pods "x" is forbidden: exceeded quota: ci, requested: cpu=4',
            QuotaExceeded,
            QuotaExceeded,
        ),
        (
            403,
            "Forbidden",
            "insufficient quota to match these scopes: [{PriorityClass In [x]}]",
            QuotaExceeded,
            None,
        ),
        (403, "Forbidden", 'pods "x" is forbidden: violates PodSecurity "restricted:latest": ...', Refused, None),
        (403, "Forbidden", "failed quota: ci: must specify limits.cpu for: dind", Refused, None),
        (403, "Forbidden", "maximum cpu usage per Container is 2, but limit is 4", Refused, None),
        (403, "Forbidden", "minimum memory usage per Pod is 1Gi, but request is 4Mi", Refused, None),
        (403, "Forbidden", 'error looking up service account ci/x: serviceaccount "x" not found', Refused, None),
        (403, "Forbidden", "no PriorityClass with name urgent was found", Refused, None),
        (
            403,
            "Forbidden",
            "unable to create new content in namespace ci because it is being terminated",
            Refused,
            None,
        ),
        (403, "Forbidden", 'admission webhook "policy.example" denied the request: no', Refused, None),
        (422, "Invalid", 'Pod "x" is invalid: spec.containers[0].image: Required value', Refused, Refused),
        (400, "BadRequest", 'strict decoding error: unknown field "spec.nodeSelektor"', Refused, Refused),
        (404, "NotFound", 'namespaces "ci" not found', Refused, Refused),
        (413, "RequestEntityTooLarge", "limit is 3145728", Refused, Refused),
        # credentials
        (401, "Unauthorized", "Unauthorized", Unauthorized, Unauthorized),
        (403, "Forbidden", 'User "x" cannot create resource "pods" in API group ""', Unauthorized, Unauthorized),
        # definite, and worth another try
        (429, "TooManyRequests", "too many requests", Transient, Transient),
        (409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "ci"', Transient, Transient),
        # half-way: the pod may have been stored
        (500, "InternalError", "etcdserver: request timed out", OutcomeUnknown, Transient),
        (503, "ServiceUnavailable", "etcdserver: leader changed", OutcomeUnknown, Transient),
        (504, "Timeout", "request did not complete within requested timeout", OutcomeUnknown, Transient),
        (408, "", "", OutcomeUnknown, Transient),
        (410, "Expired", "too old resource version", OutcomeUnknown, Expired),
    ],
)
def test_k6_k7_answers(
    status: int, reason: str, message: str, launch: type[ProviderError], read: type[ProviderError] | None
) -> None:
    assert isinstance(translate(ApiError(status, reason, message), "lab", launching=True), launch)
    assert isinstance(translate(ApiError(status, reason, message), "lab"), read or launch)
    assert not isinstance(translate(ApiError(status, reason, message), "lab"), NoCapacity)


KEY = aiohttp.client_reqrep.ConnectionKey("lab", 443, True, True, None, None, None)


@pytest.mark.parametrize(
    ("error", "launch", "read"),
    [
        (aiohttp.ServerDisconnectedError(), OutcomeUnknown, Transient),
        (aiohttp.SocketTimeoutError(), OutcomeUnknown, Transient),
        (aiohttp.ClientPayloadError("cut"), OutcomeUnknown, Transient),
        (ValueError("no JSON"), OutcomeUnknown, Transient),
        (aiohttp.ConnectionTimeoutError(), Transient, Transient),
        (aiohttp.ClientConnectorError(KEY, OSError(111, "refused")), Transient, Transient),
        (aiohttp.ClientConnectorCertificateError(KEY, OSError("self-signed")), Unauthorized, Unauthorized),
    ],
)
def test_no_answer(error: Exception, launch: type[ProviderError], read: type[ProviderError]) -> None:
    assert type(translate(error, "lab", launching=True)) is launch
    assert type(translate(error, "lab")) is read


def test_the_text_names_account_and_reason() -> None:
    error = ApiError(404, "NotFound", 'namespaces "ci" not found')
    assert str(translate(error, "lab (ci) POST pods")) == (
        'lab (ci) POST pods: 404 NotFound: namespaces "ci" not found'
    )
