"""A plot of a workload simulation; requires matplotlib (`pip install marin-iris[plot]`)."""

from pathlib import Path

from iris.domain.states import PriorityBand
from iris.sim.workload.simulate import SimulationResult
from rigging.errors import InvalidRequest


def plot(outcome: SimulationResult, path: Path) -> None:
    """Write a plot of fleet usage and pending tasks over time, and of the waiting times of each band.

    Raises InvalidRequest if matplotlib is missing or cannot write this file type.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise InvalidRequest("--plot needs matplotlib: `uv pip install 'marin-iris[plot]'`") from error
    figure, (use, queue, waits) = pyplot.subplots(3, 1, figsize=(10, 11), layout="constrained")
    hours = [sample.at_s / 3600 for sample in outcome.samples] + [outcome.end_s / 3600]
    for name, whole, label in (("cores_used", outcome.cores, "cpu"), ("devices_used", outcome.devices, "accelerators")):
        if whole:
            shares = [100 * getattr(sample, name) / whole for sample in outcome.samples]
            use.step(hours, [*shares, shares[-1] if shares else 0], where="post", label=label)
    use.set(ylabel="in use, %", ylim=(0, 105), title="Use of the fleet")
    use.legend(loc="lower right")
    waiting = [sample.waiting for sample in outcome.samples]
    queue.step(hours, [*waiting, waiting[-1] if waiting else 0], where="post", color="tab:red")
    queue.set(xlabel="hours", ylabel="tasks waiting", title="Queue")
    for band in PriorityBand:
        seconds = sorted(wait.seconds for wait in outcome.waits if wait.band is band)
        if seconds:
            ranks = [100 * (number + 1) / len(seconds) for number in range(len(seconds))]
            waits.step([second / 60 for second in seconds], ranks, where="post", label=band.word)
    waits.set(xlabel="minutes from submission to first start", ylabel="% of tasks", title="Waiting")
    waits.set_xscale("symlog")
    if outcome.waits:
        waits.legend(loc="lower right")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"--plot {path}: cannot be written: {error}") from error
    finally:
        pyplot.close(figure)
