"""A pipeline that is run by several processes under a storm of signals (see test_storm.py).

`storm_pipeline.py PREFIX LOCAL_DIRECTORY STEPS SLOT`; PREFIX may be on any storage. A step holds a kernel lock while it
works, which ends with its process, and writes an output of two parts. Whatever is wrong goes to `{directory}/trouble`.
"""

import fcntl
import json
import os
import random
import sys
import time
from dataclasses import dataclass

from marin.execution import Executor, ExecutorStep, output_path_of, this_output_path, versioned
from marin.execution.lease.step_lease import LeaseTerms
from marin.execution.script.main import exit_on_signals
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.log_setup import configure_logging

WIDTH = 4


@dataclass(frozen=True)
class Config:
    number: int
    output_path: str
    directory: str
    inputs: tuple[str, ...] = ()


class JumpingClock:
    """The machine's clocks, the wall clock off by what a file says at the moment."""

    def __init__(self, path: str) -> None:
        self._path = path

    def now(self) -> float:
        with open(self._path) as handle:
            return time.time() + float(handle.read() or 0)

    def monotonic(self) -> float:
        return time.monotonic()


def report(directory: str, text: str) -> None:
    with open(f"{directory}/trouble", "a") as trouble:
        trouble.write(f"{text} (process {os.getpid()})\n")


def complete(path: str) -> bool:
    first, second = (read_bytes_or_none(f"{path}/{name}") for name in ("first", "second"))
    return first is not None and first == second


def work(config: Config) -> str:
    for path in config.inputs:
        if read_bytes_or_none(f"{path}/.executor_status") != b"SUCCESS" or not complete(path):
            report(config.directory, f"step {config.number} was given half an input, {path}")
    # The kernel's own lock, which ends with its process.
    with open(f"{config.directory}/witness-{config.number}", "a") as witness:
        try:
            fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(config.directory, f"step {config.number}: two writers at once")
            raise
        attempt = os.urandom(6).hex()
        open(f"{config.directory}/at-work-{os.getpid()}", "w").close()
        with open(f"{config.directory}/attempts", "a") as attempts:
            attempts.write(f"{config.number} {attempt}\n")
        dice = random.Random(attempt)
        time.sleep(dice.uniform(0, 0.2))
        write_bytes_atomic(f"{config.output_path}/first", attempt.encode())
        time.sleep(dice.uniform(0, 0.8))
        write_bytes_atomic(f"{config.output_path}/second", attempt.encode())
        if read_bytes_or_none(f"{config.output_path}/first") != attempt.encode():
            report(config.directory, f"step {config.number}: somebody else wrote its output")
    return attempt


def steps(directory: str, count: int) -> list[ExecutorStep[Config]]:
    """Layers of a few steps, each of which reads up to two of the layer before."""
    shape = random.Random(count)  # the same for every process
    made: list[ExecutorStep[Config]] = []
    for number in range(count):
        layer = number // WIDTH
        before = made[(layer - 1) * WIDTH : layer * WIDTH] if layer else []
        inputs = shape.sample(before, min(len(before), 2))
        config = Config(
            versioned(number), this_output_path(), directory, tuple(output_path_of(step) for step in inputs)
        )
        made.append(ExecutorStep(name=f"storm/s{number}", fn=work, config=config))
    return made


def main() -> None:
    prefix, directory, count, slot = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    configure_logging()
    wanted = steps(directory, count)
    executor = Executor(prefix, f"{prefix}/experiments/{slot}")
    executor.observers = []
    executor.lease_terms = LeaseTerms(0.5, 20, clock=JumpingClock(f"{directory}/clock-{slot}"))
    with exit_on_signals():
        paths = executor.run(wanted)
    with open(f"{directory}/paths.{os.getpid()}", "w") as handle:
        json.dump({step.name: path for step, path in paths.items()}, handle)
    os.replace(handle.name, f"{directory}/paths")


if __name__ == "__main__":
    main()
