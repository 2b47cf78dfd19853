"""What jobs get by themselves: small root jobs prefer hosts that stay; images need workers with containers."""

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.ids import JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.runtime import TaskRuntime
from iris.sched.preferences import OFF_PREEMPTIBLE, preference_text, with_image, with_preferences

STAYS, GOES = {"preemptible": "false"}, {"preemptible": "true"}
SMALL = Resources(1000, 2**30, 0)


def spec(name: str = "/ann/a", resources: Resources = SMALL, **fields: object) -> JobSpec:
    return JobSpec(JobId(name), CommandEntrypoint(("true",)), resources, **fields)  # type: ignore[arg-type]  # of tests


def test_a_small_root_job_prefers_hosts_that_stay_where_there_are_both_kinds() -> None:
    for offers in ([STAYS, GOES], [{}, GOES]):
        assert with_preferences(spec(), offers).constraints == (OFF_PREEMPTIBLE,)
    for offers in ([], [STAYS], [GOES], [{}]):
        assert with_preferences(spec(), offers) == spec()


@pytest.mark.parametrize(
    "other",
    [
        spec("/ann/a/child"),
        spec(resources=Resources(1001, 1, 0)),
        spec(resources=Resources(1, 1, 0, Device("gpu", "H100", 1))),
        spec(replicas=2),
        spec(constraints=(Constraint("preemptible", ConstraintOp.EQ, ("true",)),)),
    ],
)
def test_other_jobs_are_left_alone(other: JobSpec) -> None:
    assert with_preferences(other, [STAYS, GOES]) == other


def test_it_is_a_preference_and_is_said() -> None:
    assert OFF_PREEMPTIBLE.soft
    assert "not preemptible are preferred" in preference_text((OFF_PREEMPTIBLE,))
    assert preference_text(()) == ""


@pytest.mark.parametrize(
    ("asked", "default", "image"),
    [("", "", ""), ("a", "", "a"), ("", "d", "d"), ("a", "d", "a"), ("none", "d", ""), ("none", "", "")],
)
def test_the_image_is_the_jobs_or_the_clusters_and_needs_a_worker_with_containers(
    asked: str, default: str, image: str
) -> None:
    found = with_image(spec(runtime=TaskRuntime(image=asked)), default)
    assert found.runtime.image == image
    assert [constraint.key for constraint in found.constraints] == (["iris-containers"] if image else [])
    assert with_image(found, "") == found
