"""A fan-out: fifty steps as jobs, each with a child job, and an actor that counts all jobs.

python -m experiments.tutorials.fan_out                                       # in this process
FRAY_CLIENT='local://?processes=1' python -m experiments.tutorials.fan_out    # each job in a process
FRAY_CLIENT=ray python -m experiments.tutorials.fan_out                       # on Ray
FRAY_CLIENT=slurm://PARTITION python -m experiments.tutorials.fan_out         # on Slurm
iris job run -- python -m experiments.tutorials.fan_out                       # on an Iris cluster

The outputs are the same on every backend, but Slurm has no actors: there, jobs are not counted. A second run finds the
outputs and does nothing. FAN_OUT_SHARDS sets the number of steps.
"""

import json
import os
from dataclasses import dataclass

from fray import ActorHandle, Entrypoint, JobRequest, ResourceConfig, current_client
from marin.execution import ExecutorStep, InputName, executor_main, output_path_of, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import open_url, read_bytes_or_none

SHARDS = 50
SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="64m")
# A job that waits lends its processor but never its memory: leave room for the jobs that it waits for.
AT_ONCE = 8


class Counter:
    """An actor that counts jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, int] = {}

    def add(self, kind: str) -> None:
        """Count one job of a kind."""
        self.jobs[kind] = self.jobs.get(kind, 0) + 1

    def read(self) -> dict[str, int]:
        """Return the number of jobs of each kind."""
        return dict(self.jobs)


@dataclass(frozen=True)
class ShardConfig:
    index: int
    output_path: str
    counter: ActorHandle | None


def square(index: int, path: str, counter: ActorHandle | None) -> None:
    """Write the square of a number: the function of a child job."""
    if counter is not None:
        counter.add("inner")
    with open_url(path, "w") as file:
        json.dump(index * index, file)


def shard(config: ShardConfig) -> None:
    """Submit a child job for the square, wait for it, and write the square plus one."""
    if config.counter is not None:
        config.counter.add("outer")
    path = os.path.join(config.output_path, "square.json")
    inner = Entrypoint.from_callable(square, [config.index, path, config.counter])
    current_client().submit(JobRequest(f"square-{config.index}", inner, SMALL)).wait()
    with open_url(path, "r") as file:
        value = json.load(file)
    with open_url(os.path.join(config.output_path, "shard.json"), "w") as file:
        json.dump(value + 1, file)


@dataclass(frozen=True)
class SumConfig:
    shard_paths: list[InputName]
    output_path: str
    counter: ActorHandle | None


def add_up(config: SumConfig) -> None:
    """Write the sum over all shards, and the number of jobs."""
    total = 0
    for path in config.shard_paths:
        with open_url(os.path.join(str(path), "shard.json"), "r") as file:
            total += json.load(file)
    with open_url(os.path.join(config.output_path, "sum.json"), "w") as file:
        jobs = None if config.counter is None else config.counter.read()
        json.dump({"sum": total, "jobs": jobs}, file)


def make_step(counter: ActorHandle | None, shards: int = SHARDS) -> ExecutorStep[SumConfig]:
    """Return the last step, which depends on the others."""
    outer = [
        ExecutorStep(
            name=f"fan_out/shard-{index}",
            fn=remote(shard, resources=SMALL),
            config=ShardConfig(index=versioned(index), output_path=this_output_path(), counter=counter),
        )
        for index in range(shards)
    ]
    return ExecutorStep(
        name="fan_out/sum",
        fn=add_up,
        config=SumConfig([output_path_of(step) for step in outer], this_output_path(), counter),
    )


def main() -> None:
    """Run the fan-out and print the result."""
    client = current_client()
    group = None
    if client.capabilities.actors:
        group = client.create_actor_group(Counter, name="fan-out-counter", count=1, resources=SMALL)
    else:
        print(f"jobs are not counted: {type(client).__name__} has no actors")
    try:
        counter = group.wait_ready()[0] if group is not None else None
        total = make_step(counter, int(os.environ.get("FAN_OUT_SHARDS", SHARDS)))
        output_paths = executor_main(
            steps=[total], description="Fan-out: jobs that submit jobs, and an actor", max_concurrent=AT_ONCE
        )
    finally:
        if group is not None:  # on a cluster an actor would go on without this script
            group.shutdown()
    result = read_bytes_or_none(os.path.join(output_paths[total], "sum.json"))
    if result is not None:
        print(f"sum: {result.decode()}")


if __name__ == "__main__":
    main()
