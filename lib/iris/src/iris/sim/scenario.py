"""The scenario of one seed: the fleet, the jobs with their expected ends, and the faults."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from iris.domain.ids import WorkerId
from iris.domain.resources import Device, Resources
from iris.domain.states import PreemptionReason
from iris.sim.controller import Faults
from iris.sim.jobs import GIB, TPU, chained, exclusive, long_plans, plans_of, swift_plans, training, urgent_gang
from iris.sim.ledger import CommitFault
from iris.sim.network import Weather
from iris.sim.programs import PlannedJob

_ROUND_S: Final = 110.0
"""From one preemption to the next: 60 s of maintenance, a restart, and some work."""


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
    SPOT = "spot notice"
    MAINTENANCE = "maintenance notice"
    UNCORDON = "host uncordoned"


ENDINGS: Final = {
    FaultKind.SPOT: (PreemptionReason.SPOT, 30.0),
    FaultKind.MAINTENANCE: (PreemptionReason.MAINTENANCE, 60.0),
}
"""For announced ends of a host: the reason, and the seconds until the platform turns it off."""


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
        is_announced: Whether every preemption has a notice, so that no checkpoint may be lost.
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
    is_announced: bool = False


def make_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; the same on every machine."""
    source = random.Random(f"scenario {seed}")
    hosts = tuple(_fleet(source))
    calm_s = source.uniform(40, 90)
    plans = tuple(plans_of(source, calm_s))
    struck = [*_faults(source, hosts, calm_s)]
    # A source of their own, so that what is above stays the story of its seed.
    silence = random.Random(f"silence {seed}")
    plans = tuple(exclusive(silence, plan) for plan in plans)
    plans = (*plans, *swift_plans(random.Random(f"swift {seed}"), calm_s))
    cut_source = random.Random(f"cuts {seed}")
    cuts = list(_cuts(cut_source, hosts, calm_s))
    if cuts:
        plans = (*plans, *long_plans(cut_source, calm_s))
    plans = tuple(chained(random.Random(f"chains {seed}"), plans))
    struck += [*cuts, *_freezes(silence, hosts, calm_s), *_notices(random.Random(f"notices {seed}"), hosts, calm_s)]
    faults = tuple(sorted(struck, key=lambda fault: fault.at_s))
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


def make_preemptions(seed: int, rounds: int = 50) -> Scenario:
    """Return a story in which a gang of four is preempted `rounds` times for each reason, in an order of the seed's."""
    source = random.Random(f"preemptions {seed}")
    capacity = Resources(4000, 16 * GIB, 50 * GIB)
    names = [WorkerId(f"tpu0-{index}") for index in range(4)]
    hosts = tuple(
        HostPlan(name, capacity, {"tpu-name": "t0", "tpu-worker-id": str(index)}, "t0", source.choice([0, 20, -20]))
        for index, name in enumerate(names)
    )
    reasons = [*PreemptionReason] * rounds
    source.shuffle(reasons)
    plans, faults = [], list[Fault]()
    for number, reason in enumerate(reasons, start=1):
        at_s, name = number * _ROUND_S + source.uniform(0, 10), source.choice(names)
        if reason is PreemptionReason.BAND:
            plans.append(replace(urgent_gang(f"/bob/urgent{number}", 4), submit_s=at_s))
        elif reason is PreemptionReason.DRAIN:
            faults += [Fault(at_s, FaultKind.DRAIN, name, 0), Fault(at_s + 40, FaultKind.UNCORDON, name, 0)]
        else:
            kind = FaultKind.SPOT if reason is PreemptionReason.SPOT else FaultKind.MAINTENANCE
            faults.append(Fault(at_s, kind, name, source.uniform(0, 10)))
        if source.random() < 0.3:  # the connection breaks while the notice is under way
            faults.append(Fault(at_s + source.uniform(0, 0.2), FaultKind.RESET, source.choice(names), 0))
    calm_s = (len(reasons) + 1) * _ROUND_S
    plans.append(training("/ann/train", 4, 0.85 * calm_s, source.choice([5000, 20_000, 30_000])))
    weather = Weather(delay_s=source.choice([0.001, 0.01, 0.1]))
    return Scenario(
        seed, hosts, tuple(plans), tuple(sorted(faults, key=lambda fault: fault.at_s)), (), weather, 30.0, calm_s,
        is_announced=True,
    )  # fmt: skip


def _fleet(source: random.Random) -> Iterator[HostPlan]:
    def host(name: str, capacity: Resources, slice_: str, **attributes: str) -> HostPlan:
        return HostPlan(WorkerId(name), capacity, attributes, slice_, source.choice([0, 0, 0, 20, -20]))

    for number in range(source.randint(2, 3)):
        cores = source.choice([2000, 4000])
        yield host(f"cpu{number}", Resources(cores, 8 * GIB, 50 * GIB), f"cpu{number}", zone=source.choice("ab"))
    for number in range(source.randint(1, 2)):
        for index in range(2):
            tpu = Resources(4000, 16 * GIB, 50 * GIB, Device("tpu", TPU, 4))
            attributes = {"tpu-name": f"t{number}", "tpu-worker-id": str(index)}
            yield host(f"tpu{number}-{index}", tpu, f"t{number}", **attributes)
    for index in range(source.choice([0, 2])):
        gpu = Resources(4000, 16 * GIB, 50 * GIB, Device("gpu", "H100", 2))
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


def _notices(source: random.Random, hosts: tuple[HostPlan, ...], calm_s: float) -> Iterator[Fault]:
    for _ in range(source.choice([0, 0, 0, 1, 2])):
        kind = source.choice(list(ENDINGS))
        yield Fault(source.uniform(0.5, calm_s), kind, source.choice(hosts).name, source.uniform(0, 20))


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
