"""Jobs while controller and workers are killed, frozen and cut off: right ends, no overlap, nothing left behind.

The small one runs always, the full one (350 jobs, 40 strokes with pauses up to 90 s) with `-m soak`; IRIS_CHAOS_JOBS,
IRIS_CHAOS_STROKES, IRIS_CHAOS_PAUSE and IRIS_CHAOS_SEED change it. A failing run prints its seed and what struck when.
"""

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.client import IrisClient, JobStatus, LogLine, TaskStatus
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from support.iris.chaos import Fleet, draw_strokes, running_fleet

pytestmark = pytest.mark.process

# An exclusive task holds a lock from its first to its last moment: whoever finds it taken was not alone.
SCRIPT = """
exec 9>>{mark}.lock
{lock}
echo "start $IRIS_ATTEMPT_ID" >>{mark}
i=0; while [ $i -lt {lines} ]; do echo "{name} line $i"; i=$((i+1)); sleep {pace}; done
echo "end $IRIS_ATTEMPT_ID" >>{mark}
exit {code}
"""
LOCK = 'flock -n 9 || echo "$IRIS_ATTEMPT_ID" >>{overlaps}'


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything.

    Args:
        heartbeat_s: Other times follow from it.
        lines: Of each task that prints much.
    """

    jobs: int
    strokes: int
    most_pause_s: float
    heartbeat_s: float
    lines: int
    workers: int = 3

    @property
    def settings(self) -> dict[str, float]:
        return {
            "heartbeat_interval_s": self.heartbeat_s,
            "worker_timeout_s": 8 * self.heartbeat_s,
            "fence_margin_s": 3.0,  # guardians look once a second
            "stop_grace_s": 1.0,
        }

    @property
    def fence_after_s(self) -> float:
        return 20 * self.heartbeat_s  # longer than a worker is waited for


@dataclass(frozen=True, slots=True)
class Planned:
    """What one job does and how it must end."""

    name: str
    exclusive: bool
    lines: int
    pace: float
    code: int


@dataclass
class Story:
    """All jobs, in the order of their submission, and what became of them."""

    fleet: Fleet
    size: Size
    source: random.Random
    planned: list[Planned] = field(default_factory=list)
    acknowledged: dict[str, Planned] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def overlaps(self) -> Path:
        return self.fleet.root / "overlaps"

    def mark(self, plan: Planned) -> Path:
        return self.fleet.root / "marks" / plan.name

    def plan(self) -> None:
        for number in range(self.size.jobs):
            exclusive = self.source.random() < 0.4
            is_long = self.source.random() < (0.6 if exclusive else 0.2)
            pace = self.source.uniform(0.1, 0.4) * self.size.heartbeat_s if is_long else self.source.uniform(0.01, 0.06)
            code = 3 if self.source.random() < 0.05 else 0
            lines = self.source.randint(40, 100) if exclusive and is_long else self.source.randint(3, 60)
            self.planned.append(Planned(f"job-{number}", exclusive, lines, pace, code))
        (self.fleet.root / "marks").mkdir()

    def command(self, plan: Planned) -> Entrypoint:
        lock = LOCK.format(overlaps=self.overlaps) if plan.exclusive else ""
        script = SCRIPT.format(
            mark=self.mark(plan), lock=lock, lines=plan.lines, name=plan.name, pace=f"{plan.pace:.3f}", code=plan.code
        )
        return Entrypoint.from_command("sh", "-c", script)

    def submit_all(self, client: IrisClient, struck: threading.Event, every_s: float) -> None:
        """Submit all along while blows fall, and at once what is left when they have ended."""
        small = ResourceSpec(cpu=0.25, memory="16MB", disk="1MB")
        for plan in self.planned:
            struck.wait(every_s)
            fence = {"exclusive": True, "fence_after": self.size.fence_after_s} if plan.exclusive else {}
            try:
                job = client.submit(self.command(plan), plan.name, small, **fence)
            except Exception as error:  # a refused job is one of those to be judged
                self.errors.append(f"{plan.name} was not accepted: {error!r}")
            else:
                self.acknowledged[job.job_id] = plan

    # ---- the judgement ----

    def judge(self, client: IrisClient, ends: list[JobStatus]) -> Iterator[str]:
        yield from self.errors
        if self.overlaps.exists():
            yield f"exclusive attempts overlapped: {self.overlaps.read_text().split()}"
        for status in ends:
            plan = self.acknowledged[status.job_id]
            (task,) = client.list_tasks(status.job_id)
            want = JobState.FAILED if plan.code else JobState.SUCCEEDED
            if status.state is not want or task.exit_code != plan.code:
                yield f"{status.job_id} ended {status.state.word} ({status.error}), code {task.exit_code}"
                continue
            yield from self._judge_runs(plan, task)
            yield from self._judge_lines(plan, task, list(client.read_logs(task.task_id)))

    def _judge_runs(self, plan: Planned, task: TaskStatus) -> Iterator[str]:
        marks = [line.split() for line in self.mark(plan).read_text().splitlines()]
        starts = Counter(name for word, name in marks if word == "start")
        ends = [name for word, name in marks if word == "end"]
        last = f"{task.task_id}:{task.attempt}"
        if last not in ends:
            yield f"{last} counts, and has not come to its end: {marks}"
        if max(starts.values()) > 1:
            yield f"an attempt of {task.task_id} ran twice: {starts}"
        if task.failures != bool(plan.code):
            yield f"{task.task_id} was charged with {task.failures} failures: {task.causes}"

    def _judge_lines(self, plan: Planned, task: TaskStatus, lines: list[LogLine]) -> Iterator[str]:
        expected = [f"{plan.name} line {number}" for number in range(plan.lines)]
        for attempt in sorted({line.attempt for line in lines}):
            # A worker writes there, too, e.g. why it did not start an attempt.
            own = [line.text for line in lines if line.attempt == attempt and not line.note and not line.partial]
            texts = [text for text in own if text.startswith(f"{plan.name} line")]
            marked = any(line.note for line in lines if line.attempt == attempt)
            if max(Counter(texts).values(), default=1) > 1 or texts != [text for text in expected if text in texts]:
                yield f"{task.task_id}:{attempt} has lines twice or in disorder: {texts}"
            if attempt == task.attempt and texts != expected and not marked:
                yield f"{task.task_id}:{attempt} lacks lines without a mark: {len(texts)} of {len(expected)}"
        if task.attempt not in {line.attempt for line in lines}:
            yield f"{task.task_id}:{task.attempt} has no output at all"


# Lines come in bursts while the blows fall: about so many seconds in all.
PRINTER = """\
import os, sys, time
task, count, seconds = os.environ["IRIS_ATTEMPT_ID"], int(sys.argv[1]), float(sys.argv[2])
for burst in range(20):
    begin, end = count * burst // 20, count * (burst + 1) // 20
    sys.stdout.write("".join(f"{task} line {i}\\n" for i in range(begin, end)))
    sys.stdout.flush()
    time.sleep(seconds / 20)
"""


@dataclass
class Printer:
    """A job of some tasks that print much, followed while it runs: each line once, in order, or marked lost."""

    client: IrisClient
    lines: int
    seconds: float
    followed: list[LogLine] = field(default_factory=list)

    def begin(self) -> None:
        small = ResourceSpec(cpu=0.25, memory="64MB", disk="1MB")
        command = Entrypoint.from_command("python", "-c", PRINTER, str(self.lines), str(self.seconds))
        self._job = self.client.submit(command, "printer", small, replicas=3)
        follow = self.client.read_logs(self._job.job_id, from_start=True, follow=True)
        self._follower = threading.Thread(target=lambda: self.followed.extend(follow))
        self._follower.start()

    def judge(self) -> Iterator[str]:
        status = self._job.wait(timeout=600)
        self._follower.join(timeout=300)
        if status.state is not JobState.SUCCEEDED:
            yield f"the printer ended {status.state.word}: {status.error}"
        for task in self.client.list_tasks(self._job.job_id):
            stored = list(self.client.read_logs(task.task_id, attempt=task.attempt))
            mine = [line for line in self.followed if (line.task_id, line.attempt) == (task.task_id, task.attempt)]
            yield from self._judge_lines(f"{task.task_id}:{task.attempt}", stored)
            yield from (f"followed: {fault}" for fault in self._judge_lines(f"{task.task_id}:{task.attempt}", mine))
            last = self.client.read_logs(task.task_id, grep=f":{task.attempt} line {self.lines - 1}$")
            if not any(line.text.endswith(f"line {self.lines - 1}") for line in last):
                yield f"{task.task_id}: its last line is not found by its text"

    def _judge_lines(self, attempt: str, lines: list[LogLine]) -> Iterator[str]:
        held, numbers = "", []
        for line in lines:  # some come in pieces; one that is cut by a note is none
            held = "" if line.note else held if line.is_stderr else held + line.text
            if not (line.note or line.is_stderr or line.partial):
                numbers += [int(held.rpartition(" ")[2])] if held.startswith(f"{attempt} line ") else []
                held = ""
        if any(after <= before for before, after in itertools.pairwise(numbers)):
            yield f"{attempt} has lines twice or in disorder"
        if len(numbers) != self.lines and not any(line.note for line in lines):
            yield f"{attempt}: {len(numbers)} of {self.lines} lines, and no mark"


def play(size: Size, root: Path, seed: int) -> list[str]:
    """Run one story and print its figures in a line; returns all that went wrong, behind its seed and the strokes."""
    source = random.Random(seed)
    began = time.monotonic()
    with running_fleet(root, size.workers, size.settings) as fleet:
        story = Story(fleet, size, source)
        story.plan()
        strokes = draw_strokes(source, fleet.targets, size.strokes, size.most_pause_s)
        per_target = Counter[str]()
        for stroke in strokes:
            per_target[stroke.target] += stroke.rest_s + stroke.pause_s
        struck = threading.Event()
        with IrisClient.remote(str(fleet.address), token=fleet.user_token) as client:
            client.cluster_status()  # it waits for a controller that it has seen once
            every_s = 0.9 * max(per_target.values()) / size.jobs
            submitter = threading.Thread(target=story.submit_all, args=(client, struck, every_s))
            submitter.start()
            printer = Printer(client, size.lines, 0.9 * max(per_target.values()))
            printer.begin()
            fleet.strike_all(strokes)
            struck.set()
            submitter.join()
            ends = client.wait_jobs(list(story.acknowledged), timeout=300)
            found = [*story.judge(client, ends), *printer.judge()]
            eventually(lambda: not fleet.processes(), "no task is left", timeout=60, instead=fleet.processes)
            tasks = [client.list_tasks(status.job_id)[0] for status in ends]
        repeated = sum(task.attempt > 0 for task in tasks)
        exclusive = [plan.exclusive for plan in story.planned].count(True)
        kinds = Counter(
            f"{stroke.blow} of {'controller' if stroke.target == 'controller' else 'workers'}" for stroke in strokes
        )
        print(
            f"seed {seed}: {len(ends)} jobs ({exclusive} exclusive), {len(strokes)} strokes ({dict(kinds)}), "
            f"{repeated} jobs tried again, {sum(task.attempt for task in tasks)} further attempts, "
            f"{time.monotonic() - began:.0f} s"
        )
        return [f"seed {seed}", *fleet.struck, *found] if found else []


def _setting(name: str, default: float) -> float:
    return float(os.environ.get(f"IRIS_CHAOS_{name}", default))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for a controller that is away for long."""
    monkeypatch.setenv("IRIS_RECONNECT_TIMEOUT", "600")


@pytest.mark.timeout(120)
def test_some_faults(tmp_path: Path, patient: None) -> None:
    size = Size(jobs=16, strokes=6, most_pause_s=2.5, heartbeat_s=0.2, lines=5_000)
    problems = play(size, tmp_path, random.randrange(2**32))
    assert problems == [], "\n".join(problems)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_faults(tmp_path: Path, patient: None) -> None:
    size = Size(
        jobs=int(_setting("JOBS", 350)), strokes=int(_setting("STROKES", 40)), most_pause_s=_setting("PAUSE", 90),
        heartbeat_s=1, lines=50_000,
    )  # fmt: skip
    problems = play(size, tmp_path, int(_setting("SEED", random.randrange(2**32))))
    assert problems == [], "\n".join(problems)
