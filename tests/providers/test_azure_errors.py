"""Azure's answers, operation codes and the SDK's exceptions, each with what the core does next."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import aiohttp
import pytest
from azure.core import exceptions as azure

from providers.azure.errors import Absent, NameExists, of_operation, translate
from providers.base import NoCapacity, OutcomeUnknown, QuotaExceeded, Refused, Transient, Unauthorized
from providers.retry import Throttled


def answered(status: int, code: str, message: str = "said Azure", **headers: str) -> azure.HttpResponseError:
    body = {"error": {"code": code, "message": message}} if code else "<html>"
    response = SimpleNamespace(
        status_code=status, reason="Said", headers=headers, json=lambda: body, text=lambda: str(body)
    )
    return azure.HttpResponseError(response=response)


@pytest.mark.parametrize(
    ("status", "code", "launch", "read"),
    [
        (409, "SkuNotAvailable", NoCapacity, NoCapacity),
        (409, "AllocationFailed", NoCapacity, NoCapacity),
        (409, "ZonalAllocationFailed", NoCapacity, NoCapacity),
        (409, "OverconstrainedZonalAllocationRequest", NoCapacity, NoCapacity),
        (409, "OverconstrainedAllocationRequest", NoCapacity, NoCapacity),
        (400, "SubnetIsFull", NoCapacity, NoCapacity),
        (409, "QuotaExceeded", QuotaExceeded, QuotaExceeded),
        (400, "PublicIPCountLimitReached", QuotaExceeded, QuotaExceeded),
        (409, "OperationNotAllowed", Refused, Refused),
        (429, "TooManyRequests", Throttled, Throttled),
        (429, "OperationNotAllowed", Throttled, Throttled),
        (409, "RetryableError", Transient, Transient),
        (401, "ExpiredAuthenticationToken", Unauthorized, Unauthorized),
        (403, "AuthorizationFailed", Unauthorized, Unauthorized),
        (403, "SomethingNew", Unauthorized, Unauthorized),
        (403, "RequestDisallowedByPolicy", Refused, Refused),
        (404, "SubscriptionNotFound", Unauthorized, Unauthorized),
        (409, "ReadOnlyDisabledSubscription", Unauthorized, Unauthorized),
        (404, "ResourceGroupNotFound", Absent, Absent),
        (400, "InvalidParameter", Refused, Refused),
        (412, "PreconditionFailed", NameExists, NameExists),
        (408, "", OutcomeUnknown, Transient),
        (500, "InternalServerError", OutcomeUnknown, Transient),
        (503, "", OutcomeUnknown, Transient),
    ],
)
def test_k6_k7_answers(status, code, launch, read):
    assert type(translate(answered(status, code), "gift", launching=True)) is launch
    assert type(translate(answered(status, code), "gift")) is read


def test_a_quota_is_told_by_its_words():
    text = "Operation could not be completed as it results in exceeding approved standardDSv4Family Cores Quota."
    assert type(translate(answered(409, "OperationNotAllowed", text), "gift", launching=True)) is QuotaExceeded


def test_an_absent_resource_refuses_a_launch():
    """A resource group, image or subnet that is not there: `Absent` is a `Refused`."""
    assert issubclass(Absent, Refused)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("AllocationFailed", NoCapacity),
        ("OverconstrainedZonalAllocationRequest", NoCapacity),
        ("QuotaExceeded", QuotaExceeded),
        ("RetryableErrorDueToAnotherOperation", Transient),
        ("LinkedAuthorizationFailed", Unauthorized),
        ("SomethingNew", Refused),
        ("OSProvisioningTimedOut", OutcomeUnknown),
        ("InternalExecutionError", OutcomeUnknown),
        ("", OutcomeUnknown),
    ],
)
def test_k6_k7_operations(code, error):
    assert type(of_operation(code, "said Azure", "gift")) is error


NO_CONNECTION = aiohttp.ClientConnectorError(Mock(), OSError("refused"))


@pytest.mark.parametrize(
    ("error", "launch", "read"),
    [
        (azure.ServiceResponseTimeoutError("slow"), OutcomeUnknown, Transient),
        (azure.ServiceResponseError("cut"), OutcomeUnknown, Transient),
        (
            azure.ServiceRequestError("cut", error=aiohttp.ServerDisconnectedError()),
            OutcomeUnknown,
            Transient,
        ),
        (azure.IncompleteReadError("half"), OutcomeUnknown, Transient),
        (ValueError("a bug"), OutcomeUnknown, Transient),
        (azure.ServiceRequestError("refused", error=NO_CONNECTION), Transient, Transient),
        (azure.ServiceRequestTimeoutError("no route"), Transient, Transient),
        (azure.ClientAuthenticationError("no credential"), Unauthorized, Unauthorized),
    ],
)
def test_no_answer(error, launch, read):
    assert type(translate(error, "gift", launching=True)) is launch
    assert type(translate(error, "gift")) is read
