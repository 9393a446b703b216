"""Google's answers, operation codes and the SDK's exceptions, each with what the core does next."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from google.api_core.exceptions import from_http_status
from google.auth import exceptions as auth
from requests import exceptions as http
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError

from providers.base import NoCapacity, OutcomeUnknown, QuotaExceeded, Refused, Transient, Unauthorized
from providers.gcp.errors import Absent, NameExists, of_operation, translate


@pytest.mark.parametrize(
    ("status", "reason", "launch", "read"),
    [
        (403, "quotaExceeded", QuotaExceeded, QuotaExceeded),
        (403, "rateLimitExceeded", Transient, Transient),
        (403, "userRateLimitExceeded", Transient, Transient),
        (429, "rateLimitExceeded", Transient, Transient),
        (429, "", Transient, Transient),
        (503, "ZONE_RESOURCE_POOL_EXHAUSTED", NoCapacity, NoCapacity),
        (401, "authError", Unauthorized, Unauthorized),
        (403, "forbidden", Unauthorized, Unauthorized),
        (403, "accessNotConfigured", Unauthorized, Unauthorized),
        (403, "", Unauthorized, Unauthorized),
        (400, "invalid", Refused, Refused),
        (400, "somethingNew", Refused, Refused),
        (404, "notFound", Absent, Absent),
        (409, "alreadyExists", NameExists, NameExists),
        (400, "resourceNotReady", OutcomeUnknown, Transient),
        (500, "internalError", OutcomeUnknown, Transient),
        (503, "backendError", OutcomeUnknown, Transient),
        (504, "", OutcomeUnknown, Transient),
    ],
)
def test_k6_k7_answers(status, reason, launch, read):
    answer = from_http_status(status, "said Google", errors=[{"reason": reason, "message": "said Google"}])
    assert type(translate(answer, "gift", launching=True)) is launch
    assert type(translate(answer, "gift")) is read


def test_an_absent_resource_refuses_a_launch():
    """A machine type, image or network that is not there: `Absent` is a `Refused`."""
    assert issubclass(Absent, Refused)


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        (["ZONE_RESOURCE_POOL_EXHAUSTED"], NoCapacity),
        (["ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"], NoCapacity),
        (["IP_SPACE_EXHAUSTED"], NoCapacity),
        (["QUOTA_EXCEEDED"], QuotaExceeded),
        (["RATE_LIMIT_EXCEEDED"], Transient),
        (["SOMETHING_NEW", "QUOTA_EXCEEDED"], QuotaExceeded),
        (["RESOURCE_ALREADY_EXISTS"], NameExists),
        (["PERMISSIONS_ERROR"], Unauthorized),
        (["INTERNAL_ERROR"], OutcomeUnknown),
        (["SOMETHING_NEW"], Refused),
        ([], OutcomeUnknown),
    ],
)
def test_k6_k7_operations(codes, error):
    said = [SimpleNamespace(code=code, message="said Google") for code in codes]
    assert type(of_operation(said, "gift")) is error


@pytest.mark.parametrize(
    ("error", "launch", "read"),
    [
        (http.ReadTimeout("slow"), OutcomeUnknown, Transient),
        (http.ConnectionError(ProtocolError("Connection aborted.")), OutcomeUnknown, Transient),
        (http.ChunkedEncodingError("cut"), OutcomeUnknown, Transient),
        (ValueError("a bug"), OutcomeUnknown, Transient),
        (http.ConnectTimeout("no route"), Transient, Transient),
        (
            http.ConnectionError(MaxRetryError(None, "/", NewConnectionError(None, "refused"))),
            Transient,
            Transient,
        ),
        (auth.TransportError("no token came"), Transient, Transient),
        (auth.RefreshError("invalid_grant"), Unauthorized, Unauthorized),
        (auth.DefaultCredentialsError("none found"), Unauthorized, Unauthorized),
    ],
)
def test_no_answer(error, launch, read):
    assert type(translate(error, "gift", launching=True)) is launch
    assert type(translate(error, "gift")) is read
