"""What follows from what is said of a job."""

from dataclasses import replace
from typing import Any

import pytest

from iris.domain.ids import JobId
from iris.domain.job_spec import (
    CallableEntrypoint,
    CommandEntrypoint,
    JobSpec,
    is_alike,
    is_gang,
    renamed,
    waits_for_host,
)  # fmt: skip
from iris.domain.resources import Device, Resources

SPEC = JobSpec(JobId("/u/a"), CommandEntrypoint(("true",)))


GPU = Resources(device=Device("gpu", "H100", 1))
GANG = {"replicas": 2, "coscheduling_group_by": "pool"}


@pytest.mark.parametrize(
    ("asked", "gang", "waits"),
    [
        ({}, False, False),
        ({"replicas": 2}, False, False),
        ({"coscheduling_group_by": "pool"}, False, False),
        (GANG, True, False),
        ({**GANG, "resources": GPU}, True, True),
        ({"resources": GPU, "replicas": 2}, False, False),
        ({**GANG, "resources": Resources(device=Device("cpu", "", 1))}, True, False),
        ({"exclusive": True}, False, True),
    ],
)
def test_who_must_run_together_and_who_waits_for_a_silent_host(asked: dict[str, Any], gang: bool, waits: bool) -> None:
    spec = replace(SPEC, **asked)
    assert (is_gang(spec), waits_for_host(spec)) == (gang, waits)


def test_jobs_that_differ_in_their_names_only_are_alike() -> None:
    other = renamed(SPEC, JobId("/u/b"))
    assert (other.job_id, is_alike(SPEC, other)) == ("/u/b", True)
    assert other == replace(SPEC, job_id=JobId("/u/b"))
    assert not is_alike(SPEC, replace(other, replicas=2))
    assert not is_alike(SPEC, replace(other, env_vars={"A": "1"}))


def test_what_runs_is_written_as_it_would_be_typed() -> None:
    assert str(CommandEntrypoint(("echo", "a b", "$HOME"))) == "echo 'a b' '$HOME'"
    assert str(CallableEntrypoint("ab" * 32)) == "callable abababababab"
    assert str(CallableEntrypoint("ab" * 32, "module:train")) == "module:train"
