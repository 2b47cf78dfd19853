"""A sweep: a few workers share the points of a grid. One worker runs each point, once.

python -m experiments.tutorials.sweep                       # in this process
FRAY_CLIENT=ray python -m experiments.tutorials.sweep       # on Ray
iris job run -- python -m experiments.tutorials.sweep       # on an Iris cluster

A second run finds all points done. Points that failed, or whose worker died, run again. See docs/tutorials/sweep.md.
"""

import itertools
import json
import os
from dataclasses import asdict, dataclass

from fray import Entrypoint, JobRequest, ResourceConfig, current_client, wait_all
from marin import metrics
from marin.execution.sweep import SweepTarget, run_sweep
from rigging.filesystem import marin_prefix, open_url

WORKERS = 3
SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="64m")


@dataclass(frozen=True)
class Point:
    """One trial: gradient descent on x² from 10, with momentum."""

    learning_rate: float
    momentum: float
    output_path: str


def descend(point: Point) -> None:
    """Record the loss of twenty steps, and write the result."""
    x, speed = 10.0, 0.0
    for step in range(20):
        speed = point.momentum * speed - point.learning_rate * 2 * x
        x += speed
        metrics.log(step=step, loss=x * x)
    with open_url(os.path.join(point.output_path, "result.json"), "w") as file:
        json.dump({**asdict(point), "loss": x * x}, file)


def targets(root: str) -> list[SweepTarget[Point]]:
    """Return the points of the grid."""
    grid = itertools.product((0.01, 0.1, 0.5), (0.0, 0.5, 0.9))
    named = {f"lr={rate}-momentum={momentum}": (rate, momentum) for rate, momentum in grid}
    return [SweepTarget(name, Point(*values, os.path.join(root, name))) for name, values in named.items()]


def work(root: str) -> None:
    """Run the points that no other worker has claimed: the function of each worker."""
    for name in run_sweep(root, targets(root), descend):
        print(f"ran {name}", flush=True)


def main() -> None:
    """Run the sweep and print the best point."""
    root = os.path.join(marin_prefix(), "sweep")
    entrypoint = Entrypoint.from_callable(work, [root])
    jobs = [current_client().submit(JobRequest(f"sweep-{index}", entrypoint, SMALL)) for index in range(WORKERS)]
    # Each goes on with the points that are left, whatever becomes of the others.
    wait_all(jobs, raise_on_failure=False)
    for job in jobs:
        job.wait()
    losses = {}
    for target in targets(root):
        with open_url(os.path.join(root, target.target_id, "result.json"), "r") as file:
            losses[target.target_id] = json.load(file)["loss"]
    best = min(losses, key=losses.__getitem__)
    print(f"best of {len(losses)}: {best}, loss {losses[best]:.3g}")


if __name__ == "__main__":
    main()
