"""The jobs of a scenario, with their behaviour and expected ends."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from iris.domain.ids import JobId, user_of
from iris.domain.job_spec import AFTER_CONDITIONS, CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.states import JobState, PriorityBand
from iris.sim.programs import PlannedJob, Program

GIB: Final = 1 << 30
TPU: Final = "v5p-16"  # two hosts of four chips
_USERS: Final = ("ann", "bob", "eve")
_FOREVER_S: Final = 1e7
_FENCE_MS: Final = 20_000
_SHARE: Final = 0.3
_SUCCEEDED: Final = frozenset({JobState.SUCCEEDED})
_FAILED: Final = frozenset({JobState.FAILED})
_KILLED: Final = frozenset({JobState.KILLED})


def plans_of(source: random.Random, calm_s: float) -> Iterator[PlannedJob]:
    """Return the jobs of all kinds that users submit before `calm_s`."""
    makers = list(_MAKERS)
    for number in range(source.choice([4, 6, 8, 10])):
        make = source.choice(makers)
        user = source.choice(_USERS)
        plan = make(source, f"/{user}/{make.__name__.strip('_')}{number}")
        yield _at(plan, source.uniform(0, calm_s * 0.8), source)


def swift_plans(source: random.Random, calm_s: float) -> Iterator[PlannedJob]:
    """Return arrays of short tasks, which are prefilled; empty for some seeds."""
    begin_s = source.uniform(0, calm_s * 0.7)
    for number in range(source.choice([0, 0, 1, 2, 3])):
        plan = _swift(source, f"/{source.choice(_USERS)}/swift{number}")
        yield _at(plan, begin_s + source.uniform(0, 5), source)


def long_plans(source: random.Random, calm_s: float) -> Iterator[PlannedJob]:
    """Return jobs that last longer than an outage of the network."""
    for number in range(source.choice([1, 2, 3])):
        spec = _spec(source, f"/{source.choice(_USERS)}/long{number}", 0.5, replicas=source.randint(1, 3))
        plan = PlannedJob(spec, _program(source, seconds=source.uniform(40, 150)))
        yield _at(plan, source.uniform(0, calm_s / 2), source)


def exclusive(source: random.Random, plan: PlannedJob) -> PlannedJob:
    """Return the plan, for some seeds as an exclusive job."""
    if source.random() < 0.7 or plan.is_refused:
        return plan
    fence_ms = source.choice([_FENCE_MS, 2 * _FENCE_MS])
    again = plan.again
    if again is not None:
        again = replace(again, spec=replace(again.spec, exclusive=True, fence_after_ms=fence_ms))
    return replace(plan, spec=replace(plan.spec, exclusive=True, fence_after_ms=fence_ms), again=again)


def _at(plan: PlannedJob, submit_s: float, source: random.Random) -> PlannedJob:
    stop_s = submit_s + source.uniform(0, 30) if plan.stop_s else 0.0
    return replace(plan, submit_s=submit_s, stop_s=stop_s)


def _spec(source: random.Random, name: str, cores: float, **fields: Any) -> JobSpec:
    fields.setdefault("band", source.choice([PriorityBand.INTERACTIVE, PriorityBand.INTERACTIVE, *PriorityBand]))
    fields.setdefault("grace_ms", 2000)
    fields.setdefault("resources", Resources(round(cores * 1000), source.choice([1, 1, 2]) * GIB))
    return JobSpec(JobId(name), CommandEntrypoint(("simulated",)), **fields)


def _program(source: random.Random, **fields: Any) -> Program:
    fields.setdefault("seconds", source.choice([0.5, 3.0, 10.0, 20.0]))
    return Program(
        ignores_term=source.random() < 0.2,
        output=source.choice([0, 0, 100, 5000]),
        prepare_s=source.choice([0, 0, 0, 2.0]),
        **fields,
    )


def _single(source: random.Random, name: str) -> PlannedJob:
    return PlannedJob(_prepared(_spec(source, name, source.choice([0.5, 1, 2]))), _program(source))


def _many(source: random.Random, name: str) -> PlannedJob:
    spec = _spec(source, name, source.choice([0.5, 1]), replicas=source.randint(3, 10))
    return PlannedJob(spec, _program(source, seconds=source.choice([0.5, 3.0])))


def _swift(source: random.Random, name: str) -> PlannedJob:
    """A job whose tasks take milliseconds, except for some long ones; some fail, some are stopped."""
    retries = source.choice([0, 0, 1])
    spec = _spec(
        source, name, source.choice([1, 1, 0.5]), replicas=source.randint(40, 120), max_retries_failure=retries,
        max_retries_preemption=source.choice([1000, 1000, 3]),
    )  # fmt: skip
    seconds = source.choice([0.005, 0.05, 0.2])
    program = Program(seconds=seconds, long_s=source.choice([0.0, 0.0, 2.0]), fails_below=retries)
    allowed = _SUCCEEDED if spec.max_retries_preemption == 1000 else _SUCCEEDED | {JobState.WORKER_FAILED}
    stop = source.random() < 0.3
    return PlannedJob(spec, program, stop_s=stop, allowed=allowed | _KILLED if stop else allowed)


def _user_error(source: random.Random, name: str) -> PlannedJob:
    spec = _spec(source, name, 0.5, replicas=source.choice([1, 3]), max_retries_failure=source.choice([0, 1]))
    endings: list[dict[str, Any]] = [{"exit_code": 2}, {"signal": 9}, {"cannot_start": True}]
    return PlannedJob(spec, _program(source, **source.choice(endings)), allowed=_FAILED)


def _bad_environment(source: random.Random, name: str) -> PlannedJob:
    spec = _prepared(_spec(source, name, 0.5))
    return PlannedJob(spec, replace(_program(source), prepare_s=1.0, prepare_fails=True), allowed=_FAILED)


def _flaky(source: random.Random, name: str) -> PlannedJob:
    times = source.randint(1, 2)
    spec = _spec(source, name, 0.5, replicas=source.choice([1, 4]), max_retries_failure=times)
    return PlannedJob(spec, _program(source, seconds=2.0, fails_below=times))


def _tolerant(source: random.Random, name: str) -> PlannedJob:
    bad = source.randint(1, 2)
    spec = _spec(source, name, 0.5, replicas=4, max_task_failures=1)
    program = _program(source, seconds=2.0, bad_tasks=frozenset(range(bad)))
    return PlannedJob(spec, program, allowed=_SUCCEEDED if bad <= spec.max_task_failures else _FAILED)


def _gang(source: random.Random, name: str) -> PlannedJob:
    fields: dict[str, Any] = {"replicas": 2, "coscheduling_group_by": "tpu-name"}
    need = Resources(1000, GIB, device=Device("tpu", TPU, 4))
    failures = source.choice([0, 0, 1])
    spec = _spec(source, name, 0, resources=need, max_retries_failure=failures, **fields)
    return PlannedJob(
        spec, _program(source, seconds=source.choice([3.0, 15.0]), fails_below=failures, blames_peer=True)
    )


def _cpu_gang(source: random.Random, name: str) -> PlannedJob:
    """A gang. Two of these fit on the slices' hosts by size, but must not run there together."""
    spec = _spec(source, name, 1, replicas=2, coscheduling_group_by="tpu-name")
    return PlannedJob(spec, _program(source, seconds=source.choice([3.0, 15.0])))


def _failing_gang(source: random.Random, name: str) -> PlannedJob:
    spec = _spec(source, name, 1, replicas=2, coscheduling_group_by="tpu-name")
    return PlannedJob(spec, _program(source, seconds=5.0, bad_tasks=frozenset({1}), blames_peer=True), allowed=_FAILED)


def _endless(source: random.Random, name: str) -> PlannedJob:
    """A job that runs until it is stopped."""
    spec = _spec(source, name, 1, replicas=source.choice([1, 2]))
    return PlannedJob(spec, _program(source, seconds=_FOREVER_S), stop_s=1, allowed=_KILLED)


def _reused(source: random.Random, name: str) -> PlannedJob:
    """A job that is stopped and whose name is reused at once, while its processes may still be ending."""
    plan = _endless(source, name)
    again = PlannedJob(_spec(source, name, 1, replicas=source.choice([1, 3])), _program(source, seconds=3.0))
    return replace(plan, again=again)


def _replaced(source: random.Random, name: str) -> PlannedJob:
    """A job that another job of the same name replaces while it runs."""
    return replace(_reused(source, name), replaces=True)


def _timed_out(source: random.Random, name: str) -> PlannedJob:
    spec = _spec(source, name, 0.5, timeout_ms=source.choice([2000, 8000]))
    return PlannedJob(spec, _program(source, seconds=_FOREVER_S), allowed=_FAILED)


def _impatient(source: random.Random, name: str) -> PlannedJob:
    spec = _spec(source, name, 2, scheduling_timeout_ms=source.choice([100, 5000]))
    return PlannedJob(spec, _program(source), allowed=_SUCCEEDED | {JobState.UNSCHEDULABLE})


def _fragile(source: random.Random, name: str) -> PlannedJob:
    """A job that tolerates no preemption."""
    spec = _spec(source, name, 1, replicas=2, max_retries_preemption=0)
    return PlannedJob(spec, _program(source), allowed=_SUCCEEDED | {JobState.WORKER_FAILED})


def _urgent(source: random.Random, name: str) -> PlannedJob:
    spec = _spec(source, name, 2, replicas=source.choice([1, 3]), band=PriorityBand.PRODUCTION)
    return PlannedJob(spec, _program(source, seconds=5.0))


def _filler(source: random.Random, name: str) -> PlannedJob:
    spec = _spec(source, name, 1, replicas=6, band=PriorityBand.BATCH)
    return PlannedJob(spec, _program(source, seconds=10.0))


def _parent(source: random.Random, name: str) -> PlannedJob:
    """A task that submits jobs and waits for them; in the small cluster they need the cpu that it lends."""
    children = []
    is_bad = source.random() < 0.3
    for number in range(source.randint(1, 3)):
        make = _user_error if is_bad and number == 0 else source.choice([_single, _many, _flaky])
        children.append(make(source, f"{name}/child{number}"))
    band = source.choice(list(PriorityBand))
    program = _program(source, children=tuple(replace(p, spec=replace(p.spec, band=band)) for p in children))
    stop = source.random() < 0.2
    allowed = _FAILED if is_bad else _SUCCEEDED
    return PlannedJob(
        _spec(source, name, 1, band=band), program, stop_s=stop, allowed=allowed | _KILLED if stop else allowed
    )


def _impossible(source: random.Random, name: str) -> PlannedJob:
    """A job that is refused, unless no worker is known yet; then it is never placed."""
    spec = _spec(source, name, 1000, scheduling_timeout_ms=1000)
    return PlannedJob(spec, _program(source), allowed=frozenset({JobState.UNSCHEDULABLE}), is_refused=True)


def _prepared(spec: JobSpec) -> JobSpec:
    return replace(spec, pip_packages=("something",))


def training(name: str, replicas: int, seconds: float, grace_ms: int) -> PlannedJob:
    """Return a gang that saves a checkpoint on each notice, and resumes from it."""
    spec = JobSpec(
        JobId(name), CommandEntrypoint(("simulated",)), resources=Resources(3000, GIB), replicas=replicas,
        coscheduling_group_by="tpu-name", band=PriorityBand.BATCH, grace_ms=grace_ms, max_retries_preemption=1_000_000,
    )  # fmt: skip
    return PlannedJob(spec, Program(seconds, resumes=True))


def urgent_gang(name: str, replicas: int) -> PlannedJob:
    """Return a short gang that preempts the others on its slice."""
    plan = training(name, replicas, 3.0, 1000)
    return replace(plan, spec=replace(plan.spec, band=PriorityBand.PRODUCTION), program=Program(3.0))


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


_MAKERS: Final = (
    _single, _single, _many, _many, _user_error, _bad_environment, _flaky, _tolerant, _gang, _gang, _gang, _cpu_gang,
    _cpu_gang, _failing_gang, _endless, _reused, _replaced, _timed_out, _impatient, _fragile, _urgent, _urgent, _filler,
    _parent, _parent, _parent, _impossible,
)  # fmt: skip
