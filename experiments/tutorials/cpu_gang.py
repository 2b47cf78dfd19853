"""A CPU gang: four replicas of one job start together, exchange sums in each round, and fit a line.

python -m experiments.tutorials.cpu_gang                                       # in this process: threads
FRAY_CLIENT='local://?processes=1' python -m experiments.tutorials.cpu_gang    # each replica in a process
FRAY_CLIENT=ray python -m experiments.tutorials.cpu_gang                       # on Ray
iris job run -- python -m experiments.tutorials.cpu_gang                       # on an Iris cluster

See docs/tutorials/cpu_gang.md.
"""

import os
import threading
from dataclasses import dataclass

from fray import ActorConfig, ActorHandle, ResourceConfig, current_client
from fray.replica import replica_index
from marin.execution import ExecutorStep, executor_main, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import open_url, read_bytes_or_none

REPLICAS = 4
SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="64m")
GANG = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="64m", replicas=REPLICAS)


class Meeting:
    """An actor that sums numbers over replicas: each replica sends its numbers and waits for the sums.

    Numbers are stored by round and replica, so that a restarted gang adds nothing twice.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.said: dict[int, dict[int, list[float]]] = {}
        self.everybody = threading.Condition()

    def add(self, round_number: int, replica: int, values: list[float]) -> list[float]:
        """Return the sums over all replicas in this round, after waiting for the last replica."""
        with self.everybody:
            said = self.said.setdefault(round_number, {})
            said[replica] = values
            self.everybody.notify_all()
            if not self.everybody.wait_for(lambda: len(said) == self.size, timeout=60):
                raise TimeoutError(f"round {round_number}: only {len(said)} of {self.size} replicas arrived")
        return [sum(parts) for parts in zip(*said.values(), strict=True)]


@dataclass(frozen=True)
class FitConfig:
    points: int
    rounds: int
    replicas: int
    meeting: ActorHandle
    output_path: str


def fit(config: FitConfig) -> None:
    """Fit y = a x + b by gradient descent. Each replica has a part of the points, and all end with the same line."""
    mine = replica_index()
    xs = [index / config.points for index in range(mine, config.points, config.replicas)]
    points = [(x, 3 * x + 2) for x in xs]
    print(f"replica {mine} has {len(points)} of {config.points} points")
    a = b = 0.0
    for round_number in range(config.rounds):
        errors = [(a * x + b - y, x) for x, y in points]
        gradient = [sum(error * x for error, x in errors), sum(error for error, _ in errors)]
        slope_a, slope_b = config.meeting.add(round_number, mine, gradient)
        a, b = a - slope_a / config.points, b - slope_b / config.points
    if mine == 0:  # all of them know it; one writes it down
        with open_url(os.path.join(config.output_path, "line.txt"), "w") as file:
            file.write(f"y = {a:.2f} x + {b:.2f}\n")


def make_step(meeting: ActorHandle) -> ExecutorStep[FitConfig]:
    """Return the step. `replicas` is not versioned, because it does not change the line."""
    config = FitConfig(versioned(1000), versioned(200), REPLICAS, meeting, this_output_path())
    return ExecutorStep(name="cpu_gang/fit", fn=remote(fit, resources=GANG), config=config)


def main() -> None:
    """Start the actor, run the gang, and print the line."""
    # Each of the calls that wait takes a thread of the actor.
    settings = ActorConfig(max_concurrency=REPLICAS)
    group = current_client().create_actor_group(
        Meeting, REPLICAS, name="cpu-gang-meeting", count=1, resources=SMALL, actor_config=settings
    )
    try:
        (meeting,) = group.wait_ready()
        step = make_step(meeting)
        paths = executor_main(steps=[step], description="CPU gang")
    finally:
        # On a cluster an actor would go on without this script.
        group.shutdown()
    result = read_bytes_or_none(os.path.join(paths[step], "line.txt"))
    if result is not None:
        print(result.decode(), end="")


if __name__ == "__main__":
    main()
