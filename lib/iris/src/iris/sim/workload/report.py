"""The figures of a workload simulation, as a readable table and as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from iris.domain.states import PriorityBand
from iris.sim.workload.simulate import Sample, SimulationResult, Wait


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """Seconds from submission to the first start of tasks. Tasks that never started count with their waiting time."""

    tasks: int
    never_started: int
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run.

    Args:
        cpu_utilisation, device_utilisation: Share of the fleet in use, averaged over time, or None.
        cpu_stranded, device_stranded: Share of the fleet that was free on hosts that suit a pending task.
        lost_core_hours: Work lost by preemption, by weight (a core 1, an accelerator 32).
    """

    hours: float
    jobs: int
    refused: int
    stuck: int
    tasks: int
    ended_tasks: int
    cpu_utilisation: float | None
    device_utilisation: float | None
    cpu_stranded: float | None
    device_stranded: float | None
    preemptions: dict[str, int]
    lost_core_hours: float
    wait_by_band: dict[str, WaitFigures]
    wait_by_user: dict[str, WaitFigures]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def figures_of(outcome: SimulationResult) -> Figures:
    """Summarize a result."""
    end_s = outcome.end_s
    bands = {band.word: [wait for wait in outcome.waits if wait.band is band] for band in PriorityBand}
    users: dict[str, list[Wait]] = {}
    for wait in sorted(outcome.waits, key=lambda wait: wait.user):
        users.setdefault(wait.user, []).append(wait)
    return Figures(
        hours=end_s / 3600,
        jobs=outcome.jobs,
        refused=len(outcome.refused),
        stuck=len(outcome.stuck),
        tasks=outcome.tasks,
        ended_tasks=outcome.ended_tasks,
        cpu_utilisation=_share(outcome.samples, "cores_used", outcome.cores, end_s),
        device_utilisation=_share(outcome.samples, "devices_used", outcome.devices, end_s),
        cpu_stranded=_share(outcome.samples, "cores_stranded", outcome.cores, end_s),
        device_stranded=_share(outcome.samples, "devices_stranded", outcome.devices, end_s),
        preemptions={band.word: count for band, count in sorted(outcome.preemptions.items())},
        lost_core_hours=outcome.lost_core_s / 3600,
        wait_by_band={word: wait_figures(waits) for word, waits in bands.items() if waits},
        wait_by_user={user: wait_figures(waits) for user, waits in users.items()},
    )


def wait_figures(waits: Sequence[Wait]) -> WaitFigures:
    """Return percentiles by nearest rank: p50 is an actual wait that half of the waits do not exceed."""
    seconds = sorted(wait.seconds for wait in waits)
    never = sum(not wait.is_over for wait in waits)
    return WaitFigures(len(waits), never, _rank(seconds, 0.50), _rank(seconds, 0.95), seconds[-1])


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(-int(-share * len(ordered) // 1) - 1, 0)]


def _share(samples: Sequence[Sample], name: str, whole: float, end_s: float) -> float | None:
    """Return the average of one value over time, as a share of `whole`."""
    if not whole or not end_s:
        return None
    ends = [sample.at_s for sample in samples[1:]] + [end_s]
    area: float = sum(getattr(sample, name) * (end - sample.at_s) for sample, end in zip(samples, ends, strict=True))
    return area / (whole * end_s)


# ---- the table ----


def table(figures: Figures, outcome: SimulationResult) -> str:
    """Return the figures as readable lines."""
    lines = [
        f"simulated        {figures.hours:.2f} h, {figures.jobs} jobs, {figures.tasks} tasks, "
        f"{figures.ended_tasks} of them ended",
        f"fleet            {outcome.cores:g} cores, {outcome.devices:g} accelerators",
        f"utilisation      cpu {_percent(figures.cpu_utilisation)}, "
        f"accelerators {_percent(figures.device_utilisation)}",
        f"stranded         cpu {_percent(figures.cpu_stranded)}, accelerators {_percent(figures.device_stranded)} "
        "(free while work waited that may run there)",
        f"preemptions      {_preemptions(figures)}",
        "",
        *_waits("band", figures.wait_by_band),
        "",
        *_waits("user", figures.wait_by_user),
    ]
    for title, found in (("refused", outcome.refused), ("never placed", outcome.stuck)):
        if found:
            lines += ["", f"{len(found)} jobs were {title}:", *(f"  {line}" for line in found[:10])]
            if len(found) > 10:
                lines.append(f"  ... and {len(found) - 10} more")
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _preemptions(figures: Figures) -> str:
    if not figures.preemptions:
        return "none"
    counts = ", ".join(f"{count} {word}" for word, count in figures.preemptions.items())
    return f"{counts}; {figures.lost_core_hours:.1f} core hours of work cut off"


def _waits(head: str, rows: dict[str, WaitFigures]) -> Iterable[str]:
    yield f"{'wait by ' + head:<16} {'tasks':>8} {'p50':>9} {'p95':>9} {'max':>9} {'never started':>14}"
    for name, wait in rows.items():
        times = " ".join(f"{_time(seconds):>9}" for seconds in (wait.p50, wait.p95, wait.max))
        yield f"{name:<16} {wait.tasks:>8} {times} {wait.never_started:>14}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
