"""Numbered lines while controller and workers are killed, frozen and cut off: each once, in order, or marked lost.

A small share runs always, the full one (20 tasks of 50,000 lines) with `-m slow`; IRIS_CHAOS_SEED changes the strokes.
"""

import itertools
import os
import random
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from iris.client import IrisClient, LogLine
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.testing.chaos import draw_strokes, running_fleet

pytestmark = pytest.mark.e2e

# The lines come in bursts while the blows fall: about so many seconds in all.
PRINTER = """\
import os, sys, time
task, count, seconds = os.environ["IRIS_ATTEMPT_ID"], int(sys.argv[1]), float(sys.argv[2])
bursts = 20
for burst in range(bursts):
    begin, end = count * burst // bursts, count * (burst + 1) // bursts
    sys.stdout.write("".join(f"{task} line {i}\\n" for i in range(begin, end)))
    sys.stdout.flush()
    time.sleep(seconds / bursts)
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything; the tasks print for about `seconds`."""

    tasks: int
    lines: int
    seconds: float
    strokes: int
    most_pause_s: float


SMALL = Size(tasks=4, lines=5_000, seconds=4, strokes=4, most_pause_s=1.5)
FULL = Size(tasks=20, lines=50_000, seconds=90, strokes=30, most_pause_s=10)


def joined(lines: Iterable[LogLine]) -> Iterator[str]:
    """The lines of stdout, of which some come in pieces; one that is cut by a note is none."""
    held = ""
    for line in lines:
        if line.note:
            held = ""
        elif not line.is_stderr:
            held += line.text
            if not line.partial:
                yield held
                held = ""


def faults(task_id: str, attempt: int, lines: list[LogLine], count: int) -> Iterator[str]:
    """What is wrong with the log of the attempt that succeeded."""
    marked = any(line.note for line in lines)
    prefix = f"{task_id}:{attempt} line "
    whole = list(joined(lines))
    numbers = [int(text.removeprefix(prefix)) for text in whole if text.startswith(prefix)]
    for before, after in itertools.pairwise(numbers):
        if after <= before:
            yield f"{task_id}: line {after} comes after line {before}"
            break
    if len(numbers) != count and not marked:
        yield f"{task_id}: {len(numbers)} of {count} lines, and no mark"


def play(size: Size, root: Path, seed: int) -> list[str]:
    source = random.Random(seed)
    settings = {"heartbeat_interval_s": 1.0, "worker_timeout_s": 8.0, "fence_margin_s": 3.0, "stop_grace_s": 1.0}
    with running_fleet(root, 2, settings) as fleet:
        strokes = draw_strokes(source, fleet.targets, size.strokes, size.most_pause_s)
        with IrisClient.remote(str(fleet.address), token=fleet.user_token) as client:
            client.cluster_status()
            job = client.submit(
                Entrypoint.from_command("python", "-c", PRINTER, str(size.lines), str(size.seconds)),
                "printer",
                ResourceSpec(cpu=0.25, memory="64MB", disk="1MB"),
                replicas=size.tasks,
            )
            followed: list[LogLine] = []
            follower = threading.Thread(
                target=lambda: followed.extend(client.read_logs(job.job_id, from_start=True, follow=True))
            )
            follower.start()
            fleet.strike_all(strokes)
            status = job.wait(timeout=600)
            follower.join(timeout=300)
            tasks = client.list_tasks(job.job_id)
            wrong = [] if status.state is JobState.SUCCEEDED else [f"it ended {status.state.word}: {status.error}"]
            for task in tasks:
                stored = list(client.read_logs(task.task_id, attempt=task.attempt))
                wrong += faults(task.task_id, task.attempt, stored, size.lines)
                mine = [line for line in followed if (line.task_id, line.attempt) == (task.task_id, task.attempt)]
                wrong += [f"followed: {fault}" for fault in faults(task.task_id, task.attempt, mine, size.lines)]
                last = list(client.read_logs(task.task_id, grep=f":{task.attempt} line {size.lines - 1}$"))
                if not any(line.text.endswith(f"line {size.lines - 1}") for line in last):
                    wrong.append(f"{task.task_id}: its last line is not found by its text")
        return [f"seed {seed}", *fleet.struck, *wrong] if wrong else []


@pytest.mark.parametrize("size", [SMALL, pytest.param(FULL, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_every_line_once_in_order_or_marked_lost(tmp_path: Path, size: Size) -> None:
    seed = int(os.environ.get("IRIS_CHAOS_SEED", random.SystemRandom().randrange(10**6)))
    wrong = play(size, tmp_path, seed)
    assert not wrong, "\n".join(wrong)
