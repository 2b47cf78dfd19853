"""Retries and failures: a step that fails at first, one that hangs, one that fails for good, and a dependant.

python -m experiments.tutorials.retries_and_failures       # ends with 1: one step fails for good
iris job run -- python -m experiments.tutorials.retries_and_failures

See docs/tutorials/retries_and_failures.md.
"""

import os
import time
from dataclasses import dataclass

from marin.execution import ExecutorStep, executor_main, output_path_of, step_lease, this_output_path, versioned
from rigging.filesystem import open_url, read_bytes_or_none

LINES = "3\n5\nseven\n9\n"


@dataclass(frozen=True)
class OutputConfig:
    output_path: str


def first_time(output_path: str) -> bool:
    """Return whether this is the first attempt, by a file that an earlier attempt would have written."""
    mark = os.path.join(output_path, "begun")
    if read_bytes_or_none(mark) is not None:
        return False
    with open_url(mark, "w") as file:
        file.write("")
    return True


def download(config: OutputConfig) -> None:
    """Fail in the first attempt, like an unreliable network."""
    if first_time(config.output_path):
        raise ConnectionError("the site hiccups")
    with open_url(os.path.join(config.output_path, "lines.txt"), "w") as file:
        file.write(LINES)
    print(f"downloaded {len(LINES.splitlines())} lines")


def wait_for_answer(config: OutputConfig) -> None:
    """Hang in the first attempt, like a server that never answers."""
    if first_time(config.output_path):
        while True:
            # A function in the script's process cannot be stopped. At its timeout this raises; a job would be stopped.
            step_lease().check()
            time.sleep(0.1)
    print("the server has answered")


@dataclass(frozen=True)
class SumConfig:
    input_path: str
    skip_bad_lines: bool
    output_path: str


def add_up(config: SumConfig) -> None:
    """Add up the lines. A line that is not a number is an error, or skipped."""
    total = 0
    with open_url(config.input_path, "r") as file:
        for number, line in enumerate(file, 1):
            if line.strip().isdigit():
                total += int(line)
            elif config.skip_bad_lines:
                print(f"line {number} is skipped: {line.strip()!r}")
            else:
                raise ValueError(f"line {number} is not a number: {line.strip()!r}")
    with open_url(os.path.join(config.output_path, "sum.txt"), "w") as file:
        file.write(f"{total}\n")


@dataclass(frozen=True)
class ReportConfig:
    input_path: str
    output_path: str


def report(config: ReportConfig) -> None:
    """Print the sum."""
    with open_url(config.input_path, "r") as file:
        print(f"the sum is {file.read().strip()}")


# `retries`, `retry_delay` and `timeout` (seconds) are no part of a version: they do not change what a step makes.
downloaded = ExecutorStep(
    name="failures/download",
    fn=download,
    config=OutputConfig(this_output_path()),
    retries=2,
    retry_delay=0.2,
)
answered = ExecutorStep(
    name="failures/answer",
    fn=wait_for_answer,
    config=OutputConfig(this_output_path()),
    retries=3,
    timeout=3,
)
# No retry helps here: the line is wrong each time.
added = ExecutorStep(
    name="failures/sum",
    fn=add_up,
    config=SumConfig(output_path_of(downloaded, "lines.txt"), versioned(False), this_output_path()),
)
reported = ExecutorStep(
    name="failures/report",
    fn=report,
    config=ReportConfig(output_path_of(added, "sum.txt"), this_output_path()),
)


if __name__ == "__main__":
    executor_main(steps=[answered, reported], description="Retries and failures")
