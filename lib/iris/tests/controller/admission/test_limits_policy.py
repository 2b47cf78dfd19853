from dataclasses import replace

import pytest

from iris.controller.admission.limits_policy import LimitsPolicy
from iris.domain.ids import JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from rigging.errors import InvalidRequest


def job(enforced: str = "memory,disk", mode: str = "") -> JobSpec:
    return JobSpec(JobId("/ann/j"), CommandEntrypoint(("true",)), enforced=enforced, limits_mode=mode)


ON_TPU = Resources(memory_bytes=1, device=Device("tpu", "v5p-8", 4))


@pytest.mark.parametrize(
    ("policy", "spec", "held_to"),
    [
        (LimitsPolicy(), job(), "memory,disk"),
        (LimitsPolicy(), job("", "soft"), ""),
        (LimitsPolicy("soft"), job(), ""),
        (LimitsPolicy("soft"), job(mode="enforced"), "memory,disk"),
        (LimitsPolicy("soft"), job("memory,cpu"), "cpu"),
        (LimitsPolicy("enforced", force=True), job(), "memory,disk"),
        (LimitsPolicy("enforced", force=True), job(mode="enforced"), "memory,disk"),
        (LimitsPolicy("soft", force=True), job(), ""),
        (LimitsPolicy("soft", force=True), job("", "soft"), ""),
        (LimitsPolicy(unstated="warn"), job(), "memory,disk"),
        (LimitsPolicy(unstated="warn"), job("disk"), "disk,memory-warning"),
        (LimitsPolicy(unstated="enforce"), job(""), "memory"),
        (LimitsPolicy(unstated="enforce"), job("", "soft"), ""),
        (LimitsPolicy("soft", unstated="enforce"), job(""), ""),
        (LimitsPolicy(unstated="enforce"), replace(job(""), resources=ON_TPU), ""),
    ],
)
def test_a_job_chooses_and_else_the_cluster(policy: LimitsPolicy, spec: JobSpec, held_to: str) -> None:
    assert policy.applied(spec).enforced == held_to


def test_what_nothing_changes_is_the_same_job() -> None:
    """Jobs that differ in their names only share their parts; that would be lost."""
    spec = job()
    assert LimitsPolicy().applied(spec) is spec


def test_a_forced_cluster_refuses_the_other_choice_and_names_it() -> None:
    with pytest.raises(InvalidRequest, match=r"it asks for soft limits \(--soft-limits\), but .* limits.force"):
        LimitsPolicy("enforced", force=True).applied(job("", "soft"))
    with pytest.raises(InvalidRequest, match=r"asks for enforced limits \(--no-soft-limits\), but this cluster"):
        LimitsPolicy("soft", force=True).applied(job(mode="enforced"))
    with pytest.raises(InvalidRequest, match="limits_mode is 'hard'; it must be 'enforced' or 'soft', or empty"):
        LimitsPolicy().applied(job(mode="hard"))
