"""A pipeline that several processes run at once (see test_crowd.py): `crowd_pipeline.py PREFIX STEPS SEED`.

Every attempt at a step notes its begin and its end in `{prefix}/journal/{step}`, by the machine's monotonic clock.
"""

import fcntl
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from marin.execution import Executor, ExecutorStep, output_path_of, this_output_path, versioned
from marin.execution.lease.step_lease import LeaseTerms


@dataclass(frozen=True)
class Config:
    number: int
    output_path: str
    journal: str
    inputs: tuple[str, ...] = ()


def note(config: Config, what: str, attempt: str) -> None:
    with open(f"{config.journal}/s{config.number}", "a") as journal:
        journal.write(f"{what} {os.getpid()} {attempt} {time.monotonic_ns()}\n")


def work(config: Config) -> None:
    """Fail when anybody else writes to this output meanwhile, or when an input is not finished."""
    for path in config.inputs:
        assert Path(path, ".executor_status").read_text() == "SUCCESS"
        assert Path(path, "data").read_text().endswith("done")
    attempt = os.urandom(6).hex()
    lock = os.open(f"{config.journal}/../lock-{config.number}", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it ends with its process; raises when somebody has it
    note(config, "begin", attempt)
    data = Path(config.output_path, "data")
    data.write_text(attempt)
    time.sleep(random.random() * 0.02)
    assert data.read_text() == attempt, "somebody else writes to this output"
    data.write_text(f"{attempt} done")
    note(config, "end", attempt)
    os.close(lock)


def steps(prefix: str, count: int) -> list[ExecutorStep[Config]]:
    """A graph of `count` steps: each depends on up to three of those before it."""
    shape = random.Random(count)  # the same for every process
    made: list[ExecutorStep[Config]] = []
    for number in range(count):
        inputs = shape.sample(made, min(len(made), shape.randrange(4)))
        config = Config(
            versioned(number), this_output_path(), f"{prefix}/journal", tuple(output_path_of(step) for step in inputs)
        )
        made.append(ExecutorStep(name=f"crowd/s{number}", fn=work, config=config))
    return made


def main() -> None:
    prefix, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    random.seed(seed)
    wanted = steps(prefix, count)
    random.shuffle(wanted)  # paths and results do not depend on the order
    executor = Executor(prefix, f"{prefix}/experiments")
    executor.observers = []
    executor.lease_terms = LeaseTerms(renew_seconds=0.5, timeout_seconds=10)
    executor.run(wanted, max_concurrent=8)


if __name__ == "__main__":
    main()
