"""Every event and every record survives JSON, and nothing else is taken for one."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.store.codec import (
    RECORD_TYPES,
    Undecodable,
    decode_event,
    decode_record,
    encode_event,
    encode_record,
    runner_state,
)
from scheduling.lifecycle import JobState, RunnerState
from scheduling.messages import Event, JobReported, MachineSeen
from scheduling.model import FundAccount, Job, Runner

EVENTS = get_args(Event)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@FEW
@given(data=st.data())
def test_every_event_survives(kind: type[Any], data: st.DataObject) -> None:
    event = data.draw(st.from_type(kind))
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("kind", RECORD_TYPES)
@FEW
@given(data=st.data())
def test_every_record_survives(kind: str, data: st.DataObject) -> None:
    record = data.draw(st.from_type(RECORD_TYPES[kind]))
    assert decode_record(kind, encode_record(record)) == record


@FEW
@given(st.from_type(Runner))
def test_the_state_of_a_runner_is_read_alone(runner: Runner) -> None:
    assert runner_state(encode_record(runner)) is runner.state


def test_a_job_event_is_compact() -> None:
    event = JobReported(
        1764511111111,
        JobState.QUEUED,
        12877621891,
        4747967848,
        1,
        "pytorch/pytorch",
        ("self-hosted", "linux", "linux.2xlarge"),
        name="build / test (default, 1, 5)",
        workflow="pull",
        branch="main",
        created_ms=1764511111000,
    )
    assert len(encode_event(event)) < 320


def test_defaults_are_left_out() -> None:
    job = Job("1.1", 1, 2, "o/r", ("linux",), JobState.QUEUED)
    assert set(msgspec.json.decode(encode_record(job))) == {
        "key",
        "job_id",
        "run_id",
        "repository",
        "labels",
        "state",
    }


def test_a_newer_version_may_add_fields() -> None:
    assert decode_event(b'["MachineSeen",{"at_ms":1,"runner_id":"r","ref":"x","new":{"a":[1]}}]') == MachineSeen(
        1, "r", "x"
    )
    assert decode_record("fund", b'{"name":"cash","new":1}') == FundAccount("cash")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'["Unheard",{}]',
        b'["MachineSeen",{}]',
        b'["MachineSeen",{"at_ms":"1","runner_id":"r","ref":"x"}]',
        b'["MachineSeen",{"at_ms":1,"runner_id":"r"',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_anything_else_is_undecodable_and_says_why(raw: bytes) -> None:
    with pytest.raises(Undecodable) as caught:
        decode_event(raw)
    assert caught.value.raw == raw
    assert caught.value.why


def test_a_damaged_record_names_its_kind() -> None:
    with pytest.raises(Undecodable, match="not a runner record"):
        decode_record("runner", b'{"id":1}')
    with pytest.raises(Undecodable, match="not a runner record"):
        runner_state(b'{"state":"flying"}')
    assert runner_state(b'{"state":"gone"}') is RunnerState.GONE
