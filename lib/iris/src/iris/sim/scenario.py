"""The scenario of one seed: the fleet, the jobs with their expected ends, and the faults."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.states import JobState, PriorityBand
from iris.sim.chains import chained
from iris.sim.controller import Faults
from iris.sim.ledger import CommitFault
from iris.sim.network import Weather
from iris.sim.programs import PlannedJob, Program

_GB: Final = 1 << 30
_USERS: Final = ("ann", "bob", "eve")
_TPU: Final = "v5p-16"  # two hosts of four chips
_FOREVER_S: Final = 1e7
FENCE_MS: Final = 20_000
_SUCCEEDED: Final = frozenset({JobState.SUCCEEDED})
_FAILED: Final = frozenset({JobState.FAILED})
_KILLED: Final = frozenset({JobState.KILLED})


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One host of the fleet. Hosts of one `slice` start and end together."""

    name: WorkerId
    capacity: Resources
    attributes: Mapping[str, str]
    slice: str
    skew_s: float


class FaultKind(StrEnum):
    """Kinds of faults."""

    CONTROLLER_KILL = "controller killed"
    CONTROLLER_STOP = "controller stopped in order"
    AGENT_CRASH = "agent crash"
    CRASH_AT_START = "agent crash when the next process starts"
    HOST_LOSS = "host lost"
    SLICE_LOSS = "slice preempted"
    HOST_LEAVE = "host leaves"
    PARTITION = "partition"
    RESET = "connection reset"
    CLIENT_PARTITION = "client partition"
    DRAIN = "drain"
    BAD_DISK = "disk of a host full"
    FREEZE = "agent frozen"
    CONTROLLER_FREEZE = "controller frozen"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Args:
        target: A host; for SLICE_LOSS, the whole slice of that host. for_s: Time until it is repaired.
        up, down: The directions of a partition.
    """

    at_s: float
    kind: FaultKind
    target: WorkerId
    for_s: float
    up: bool = True
    down: bool = True


@dataclass(frozen=True, slots=True)
class Scenario:
    """All random choices of a seed.

    Args:
        calm_s: When faults end and everything is repaired.
        lives: Faults of the first, second, ... run of the controller; later runs have none.
    """

    seed: int
    hosts: tuple[HostPlan, ...]
    plans: tuple[PlannedJob, ...]
    faults: tuple[Fault, ...]
    lives: tuple[Faults, ...]
    weather: Weather
    worker_timeout_s: float
    calm_s: float
    partition_patience_s: float = 0


def make_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; the same on every machine."""
    source = random.Random(f"scenario {seed}")
    hosts = tuple(_fleet(source))
    calm_s = source.uniform(40, 90)
    plans = tuple(_plans(source, calm_s))
    struck = [*_faults(source, hosts, calm_s)]
    # A source of their own, so that what is above stays the story of its seed.
    silence = random.Random(f"silence {seed}")
    plans = tuple(_exclusive(silence, plan) for plan in plans)
    plans = (*plans, *_swift_plans(random.Random(f"swift {seed}"), calm_s))
    cut_source = random.Random(f"cuts {seed}")
    cuts = list(_cuts(cut_source, hosts, calm_s))
    if cuts:
        plans = (*plans, *_long_plans(cut_source, calm_s))
    plans = tuple(chained(random.Random(f"chains {seed}"), plans))
    faults = tuple(sorted([*struck, *cuts, *_freezes(silence, hosts, calm_s)], key=lambda fault: fault.at_s))
    return Scenario(
        seed,
        hosts,
        plans,
        faults,
        tuple(_life(source) for _ in range(source.choice([0, 1, 2, 3]))),
        _weather(source),
        source.choice([15.0, 30.0, 60.0]),
        max([calm_s, *(cut.at_s + cut.for_s + 5 for cut in cuts)]),
        cut_source.choice([0.0, 20.0, 300.0]),
    )


def _fleet(source: random.Random) -> Iterator[HostPlan]:
    def host(name: str, capacity: Resources, slice_: str, **attributes: str) -> HostPlan:
        return HostPlan(WorkerId(name), capacity, attributes, slice_, source.choice([0, 0, 0, 20, -20]))

    for number in range(source.randint(2, 3)):
        cores = source.choice([2000, 4000])
        yield host(f"cpu{number}", Resources(cores, 8 * _GB, 50 * _GB), f"cpu{number}", zone=source.choice("ab"))
    for number in range(source.randint(1, 2)):
        for index in range(2):
            tpu = Resources(4000, 16 * _GB, 50 * _GB, Device("tpu", _TPU, 4))
            attributes = {"tpu-name": f"t{number}", "tpu-worker-id": str(index)}
            yield host(f"tpu{number}-{index}", tpu, f"t{number}", **attributes)
    for index in range(source.choice([0, 2])):
        gpu = Resources(4000, 16 * _GB, 50 * _GB, Device("gpu", "H100", 2))
        yield host(f"gpu{index}", gpu, "p0", pool="p0")


def _life(source: random.Random) -> Faults:
    commits: dict[int, CommitFault] = {}
    kind = source.random()
    if kind < 0.5:
        fatal = source.choice([CommitFault.CRASH_BEFORE, CommitFault.CRASH_AFTER, CommitFault.DISK_FULL])
        commits[source.randint(1, 60)] = fatal
    for _ in range(source.choice([0, 0, 2])):
        commits.setdefault(source.randint(1, 60), CommitFault.SLOW)
    steps = round(10 ** source.uniform(1, 3.7)) if 0.4 < kind < 0.9 else 0
    return Faults(commits, steps, source.uniform(0.1, 8))


def _weather(source: random.Random) -> Weather:
    if source.random() < 0.25:
        return Weather(delay_s=source.choice([0.0005, 0.005]))
    return Weather(
        delay_s=source.choice([0.001, 0.01, 0.1]),
        slow=source.choice([0.0, 0.02, 0.1]),
        slow_s=source.choice([0.5, 3.0, 8.0]),
        loss=source.choice([0.0, 0.05, 0.2]),
        twice=source.choice([0.0, 0.05, 0.2]),
    )


_KINDS: Final = (
    *(FaultKind.CONTROLLER_KILL,) * 3,
    FaultKind.CONTROLLER_STOP,
    FaultKind.AGENT_CRASH,
    *(FaultKind.CRASH_AT_START,) * 2,
    FaultKind.HOST_LOSS,
    *(FaultKind.SLICE_LOSS,) * 2,
    FaultKind.HOST_LEAVE,
    *(FaultKind.PARTITION,) * 4,
    *(FaultKind.RESET,) * 2,
    FaultKind.CLIENT_PARTITION,
    FaultKind.DRAIN,
    FaultKind.BAD_DISK,
)


def _faults(source: random.Random, hosts: tuple[HostPlan, ...], calm_s: float) -> Iterator[Fault]:
    for _ in range(source.choice([0, 2, 4, 8, 12])):
        kind = source.choice(_KINDS)
        target = source.choice(hosts).name
        at_s = source.uniform(0.5, calm_s)
        for_s = 10 ** source.uniform(-1, 1.7)
        ways = source.choice([(True, True), (True, True), (True, False), (False, True)])
        yield Fault(at_s, kind, target, for_s, *ways)
        if kind is FaultKind.PARTITION and source.random() < 0.4:
            # Trouble comes together: the controller dies while a worker cannot be reached.
            yield Fault(at_s + source.uniform(0, for_s), FaultKind.CONTROLLER_KILL, target, source.uniform(0.1, 5))


def _freezes(source: random.Random, hosts: tuple[HostPlan, ...], calm_s: float) -> Iterator[Fault]:
    for _ in range(source.choice([0, 0, 1, 2, 4])):
        kind = source.choice([FaultKind.FREEZE, FaultKind.FREEZE, FaultKind.FREEZE, FaultKind.CONTROLLER_FREEZE])
        yield Fault(source.uniform(0.5, calm_s), kind, source.choice(hosts).name, 10 ** source.uniform(0, 1.9))


def _cuts(source: random.Random, hosts: tuple[HostPlan, ...], calm_s: float) -> Iterator[Fault]:
    """Return network outages between the controller and one, half or all of the hosts at once."""
    for _ in range(source.choice([0, 0, 1, 1, 2])):
        count = source.choice([1, (len(hosts) + 1) // 2, len(hosts)])
        at_s, for_s = source.uniform(0.5, calm_s), source.choice([source.uniform(5, 90), source.uniform(60, 300)])
        ways = source.choice([(True, True), (True, True), (True, False), (False, True)])
        for host in source.sample(hosts, count):
            yield Fault(at_s + source.uniform(0, 2), FaultKind.PARTITION, host.name, for_s, *ways)


# ---- jobs ----


def _plans(source: random.Random, calm_s: float) -> Iterator[PlannedJob]:
    makers = list(_MAKERS)
    for number in range(source.choice([4, 6, 8, 10])):
        make = source.choice(makers)
        user = source.choice(_USERS)
        plan = make(source, f"/{user}/{make.__name__.strip('_')}{number}")
        yield _at(plan, source.uniform(0, calm_s * 0.8), source)


def _swift_plans(source: random.Random, calm_s: float) -> Iterator[PlannedJob]:
    """Return arrays of short tasks, which are prefilled; empty for some seeds."""
    begin_s = source.uniform(0, calm_s * 0.7)
    for number in range(source.choice([0, 0, 1, 2, 3])):
        plan = _swift(source, f"/{source.choice(_USERS)}/swift{number}")
        yield _at(plan, begin_s + source.uniform(0, 5), source)


def _long_plans(source: random.Random, calm_s: float) -> Iterator[PlannedJob]:
    """Return jobs that last longer than an outage of the network."""
    for number in range(source.choice([1, 2, 3])):
        spec = _spec(source, f"/{source.choice(_USERS)}/long{number}", 0.5, replicas=source.randint(1, 3))
        plan = PlannedJob(spec, _program(source, seconds=source.uniform(40, 150)))
        yield _at(plan, source.uniform(0, calm_s / 2), source)


def _exclusive(source: random.Random, plan: PlannedJob) -> PlannedJob:
    """Return the plan, for some seeds as an exclusive job."""
    if source.random() < 0.7 or plan.is_refused:
        return plan
    fence_ms = source.choice([FENCE_MS, 2 * FENCE_MS])
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
    fields.setdefault("resources", Resources(round(cores * 1000), source.choice([1, 1, 2]) * _GB))
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
    need = Resources(1000, _GB, device=Device("tpu", _TPU, 4))
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


_MAKERS: Final = (
    _single, _single, _many, _many, _user_error, _bad_environment, _flaky, _tolerant, _gang, _gang, _gang, _cpu_gang,
    _cpu_gang, _failing_gang, _endless, _reused, _replaced, _timed_out, _impatient, _fragile, _urgent, _urgent, _filler,
    _parent, _parent, _parent, _impossible,
)  # fmt: skip
