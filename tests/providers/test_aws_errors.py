"""EC2's error codes and botocore's exceptions, each with what the core does next."""

from __future__ import annotations

import pytest
from botocore import exceptions as boto

from providers.aws.errors import translate
from providers.base import (
    NoCapacity,
    OutcomeUnknown,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)


def answered(code: str, status: int) -> boto.ClientError:
    return boto.ClientError(
        {"Error": {"Code": code, "Message": "said EC2"}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "RunInstances",
    )


@pytest.mark.parametrize(
    ("code", "status", "launch", "read"),
    [
        # K6: sold out is 500 on the wire, and definite
        ("InsufficientInstanceCapacity", 500, NoCapacity, NoCapacity),
        ("InsufficientHostCapacity", 500, NoCapacity, NoCapacity),
        ("UnfulfillableCapacity", 500, NoCapacity, NoCapacity),
        ("InsufficientFreeAddressesInSubnet", 400, NoCapacity, NoCapacity),
        ("SpotMaxPriceTooLow", 400, NoCapacity, NoCapacity),
        # K7: quotas and bad requests
        ("VcpuLimitExceeded", 400, QuotaExceeded, QuotaExceeded),
        ("InstanceLimitExceeded", 400, QuotaExceeded, QuotaExceeded),
        ("MaxSpotInstanceCountExceeded", 400, QuotaExceeded, QuotaExceeded),
        ("VolumeLimitExceeded", 400, QuotaExceeded, QuotaExceeded),
        ("InvalidAMIID.NotFound", 400, Refused, Refused),
        ("InvalidAMIID.Unavailable", 400, Refused, Refused),
        ("Unsupported", 400, Refused, Refused),
        ("InvalidParameterValue", 400, Refused, Refused),
        ("InvalidSubnetID.NotFound", 400, Refused, Refused),
        ("SomethingNewAndBad", 400, Refused, Refused),
        # credentials
        ("UnauthorizedOperation", 403, Unauthorized, Unauthorized),
        ("AuthFailure", 401, Unauthorized, Unauthorized),
        ("ExpiredToken", 400, Unauthorized, Unauthorized),
        ("RequestExpired", 400, Unauthorized, Unauthorized),
        # throttling is definite, whatever its status
        ("RequestLimitExceeded", 503, Transient, Transient),
        ("Throttling", 400, Transient, Transient),
        # anything else from EC2's own side may hide a machine
        ("InternalError", 500, OutcomeUnknown, Transient),
        ("Unavailable", 503, OutcomeUnknown, Transient),
        ("ServiceUnavailable", 503, OutcomeUnknown, Transient),
        ("504", 504, OutcomeUnknown, Transient),
        # the token says that an earlier call was applied
        ("IdempotentParameterMismatch", 400, OutcomeUnknown, Refused),
        ("IdempotentInstanceTerminated", 400, OutcomeUnknown, Refused),
    ],
)
def test_k6_k7_codes(code, status, launch, read):
    assert type(translate(answered(code, status), "gift", launching=True)) is launch
    assert type(translate(answered(code, status), "gift")) is read


@pytest.mark.parametrize(
    ("error", "launch", "read"),
    [
        (boto.ReadTimeoutError(endpoint_url="http://ec2"), OutcomeUnknown, Transient),
        (boto.ConnectionClosedError(endpoint_url="http://ec2"), OutcomeUnknown, Transient),
        (boto.ResponseStreamingError(error="cut"), OutcomeUnknown, Transient),
        (boto.SSLError(endpoint_url="https://ec2", error="eof"), OutcomeUnknown, Transient),
        (ValueError("a bug"), OutcomeUnknown, Transient),
        (boto.ConnectTimeoutError(endpoint_url="http://ec2"), Transient, Transient),
        (boto.EndpointConnectionError(endpoint_url="http://ec2"), Transient, Transient),
        (boto.NoCredentialsError(), Unauthorized, Unauthorized),
        (boto.ProfileNotFound(profile="sponsor"), Unauthorized, Unauthorized),
        (boto.ParamValidationError(report="MinCount"), Refused, Refused),
    ],
)
def test_no_answer(error, launch, read):
    assert type(translate(error, "gift", launching=True)) is launch
    assert type(translate(error, "gift")) is read


def test_the_text_names_account_and_code():
    assert str(translate(answered("VcpuLimitExceeded", 400), "gift (us-east-1) run_instances")) == (
        "gift (us-east-1) run_instances: An error occurred (VcpuLimitExceeded) when calling the RunInstances "
        "operation: said EC2"
    )
