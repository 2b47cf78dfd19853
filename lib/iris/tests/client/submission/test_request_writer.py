"""Submissions in a row: what is sent for one is copied from the last one only where nothing but the name differs."""

import os
from dataclasses import replace
from typing import Any

import pytest

from iris.client.connection.connection import Connection
from iris.client.plan import JobLimits, JobPlan
from iris.client.submission.submit import Submitter
from iris.cluster.types import Entrypoint, EnvironmentSpec, ExistingJobPolicy, ResourceSpec
from iris.rpc import iris_pb2 as pb

PLAN = JobPlan(Entrypoint.from_command("true"), "a", user="ann")


class Calls:
    def __init__(self) -> None:
        self.sent: list[pb.SubmitJobRequest] = []

    def submit(self, requests: list[pb.SubmitJobRequest]) -> list[pb.SubmitJobResponse]:
        self.sent += requests
        return [pb.SubmitJobResponse(job_id=request.spec.job_id) for request in requests]


def submitter(environ: dict[str, str]) -> tuple[Submitter, Calls]:
    calls: Any = Calls()
    return Submitter(Connection(lambda _: pytest.fail("asked")), None, environ=environ, calls=calls), calls


def submitted(environ: dict[str, str], *plans: JobPlan) -> list[pb.SubmitJobRequest]:
    own, calls = submitter(environ)
    for plan in plans:
        own.submit(plan, existing=ExistingJobPolicy.FAIL, idempotency_key=None)
    return calls.sent


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, name="b"),
        replace(PLAN, name="b", user="bob"),
        replace(PLAN, name="b", entrypoint=Entrypoint.from_command("false")),
        replace(PLAN, name="b", resources=ResourceSpec(cpu=3)),
        replace(PLAN, name="b", environment=EnvironmentSpec(env_vars={"A": "1"})),
        replace(PLAN, name="b", replicas=2),
        replace(PLAN, name="b", limits=JobLimits(timeout=3)),
        replace(PLAN, name="b", ports=["http"]),
        replace(PLAN, name="b", exclusive=True),
        replace(PLAN, name="b", priority_band="batch"),
        replace(PLAN, name="b", entrypoint=Entrypoint.from_callable(os.getpid)),
    ],
)
def test_a_job_after_another_is_sent_as_it_would_be_alone(other: JobPlan) -> None:
    _, after = submitted({"MARIN_PREFIX": "/p"}, PLAN, other)
    (alone,) = submitted({"MARIN_PREFIX": "/p"}, other)
    assert after.idempotency_key != alone.idempotency_key
    after.idempotency_key = alone.idempotency_key
    assert after == alone


def test_what_was_changed_in_place_since_is_sent() -> None:
    environ: dict[str, str] = {}
    own, calls = submitter(environ)
    ports, variables = ["http"], {"A": "1"}
    plan = replace(PLAN, ports=ports, environment=EnvironmentSpec(env_vars=variables))
    own.submit(plan, existing=ExistingJobPolicy.FAIL, idempotency_key=None)
    ports.append("more")
    variables["A"] = "2"
    environ["MARIN_PREFIX"] = "/p"
    own.submit(plan, existing=ExistingJobPolicy.ADOPT, idempotency_key="key")
    sent = calls.sent[1]
    assert list(sent.spec.ports) == ["http", "more"]
    assert dict(sent.spec.environment.env_vars) == {"A": "2", "MARIN_PREFIX": "/p"}
    assert (sent.existing, sent.idempotency_key) == (pb.EXISTING_JOB_POLICY_ADOPT, "key")


class Uncertain:
    """As arrays are: equal or not is no plain truth."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_arguments_of_callables_are_not_compared() -> None:
    plans = [replace(PLAN, name=name, entrypoint=Entrypoint.from_callable(id, Uncertain())) for name in "ab"]
    assert [sent.spec.job_id for sent in submitted({}, *plans)] == ["/ann/a", "/ann/b"]
