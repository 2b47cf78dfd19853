"""Makes some jobs of a scenario wait for others (`JobSpec.after`)."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from iris.domain.ids import user_of
from iris.domain.job_spec import AFTER_CONDITIONS
from iris.domain.states import JobState
from iris.sim.programs import PlannedJob

_SHARE = 0.3


def chained(source: random.Random, plans: Sequence[PlannedJob]) -> Iterator[PlannedJob]:
    """Return the plans, some of which wait for one or two earlier plans of the same user. Each user submits a waiting
    job when its submission no longer fails.
    """
    before: list[PlannedJob] = []
    for plan in plans:
        own = [other for other in before if user_of(other.spec.job_id) == user_of(plan.spec.job_id)]
        if own and not plan.is_refused and source.random() < _SHARE:
            chosen = source.sample(own, min(len(own), source.choice([1, 1, 2])))
            plan = _after(plan, [(other, source.choice(AFTER_CONDITIONS)) for other in chosen])
        if not plan.is_refused:
            before.append(plan)
        yield plan


def _after(plan: PlannedJob, waits: Sequence[tuple[PlannedJob, str]]) -> PlannedJob:
    allowed = set(plan.allowed)
    for other, condition in waits:
        ends = other.allowed | (other.again.allowed if other.again is not None else frozenset())
        if condition == "ok" and ends != {JobState.SUCCEEDED}:
            allowed.add(JobState.UNSCHEDULABLE)
    text = ",".join(f"{other.spec.job_id}:{condition}" for other, condition in waits)
    return replace(plan, spec=replace(plan.spec, after=text), allowed=frozenset(allowed))
