"""Cuts, kills and freezes lose no work that could be kept.

Cuts are of one, half and all hosts, both ways and one way; killed and frozen are workers and the controller. The short
stories run always, the full ones (20 minutes, 300 jobs, cuts of 5 to 300 s) with `-m soak`; IRIS_OUTAGE_MINUTES,
IRIS_OUTAGE_JOBS, IRIS_OUTAGE_CUT, IRIS_OUTAGE_LOST_AFTER and IRIS_OUTAGE_SEED change them. Every attempt that followed
another is printed, with its reason.
"""

import json
import os
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.iris.host_cluster import CONTROLLER, Cluster, until
from support.iris.hosts import Host

pytestmark = pytest.mark.process

# h1 and h2 are a slice, so are h3 and h4: four hosts, as the controller counts them when it suspects itself.
SLICES = {"h1": "a", "h2": "a", "h3": "b", "h4": "b", "h5": "c", "h6": "d"}
SETTLES_S = 1.0
"""What begins so soon after a host was heard again, or fell silent, may have been on its way before."""
TOGETHER_S, PATIENCE_S = 30.0, 300.0
SCRIPT = """
say() {{ echo "$1 $IRIS_ATTEMPT_ID $IRIS_WORKER_ID $(date +%s.%N)" >>{marks}; }}
exec 9>>{marks}.lock
{lock}
say start
i=0; while [ $i -lt {lines} ]; do echo "{name} line $i"; i=$((i+1)); sleep {pace}; done
say end
"""
LOCK = "flock -n 9 || say overlap"


@dataclass(frozen=True, slots=True)
class Size:
    seconds: float
    jobs: int
    cut_s: tuple[float, float]
    rest_s: tuple[float, float]
    lost_after_s: int
    strikes: bool = False  # kills and freezes instead of cuts


@dataclass(frozen=True, slots=True)
class Cut:
    hosts: tuple[str, ...]
    begin: float
    end: float
    one_way: bool

    def __str__(self) -> str:
        way = "one way" if self.one_way else "both ways"
        return f"{','.join(self.hosts)} {way} {self.end - self.begin:.1f} s from {self.begin:.1f}"


@dataclass(frozen=True, slots=True)
class Mark:
    word: str
    task: str
    attempt: int
    host: str
    at: float

    @classmethod
    def read(cls, line: str) -> "Mark":
        word, name, host, at = line.split()
        task, _, attempt = name.rpartition(":")
        return cls(word, task, int(attempt), host, float(at))


@dataclass
class Heard:
    """Which hosts the controller hears, as it says itself: when that began or ended for one."""

    turns: list[tuple[float, str, bool]]

    def since(self, host: str, at: float) -> tuple[bool, float]:
        """Return whether the host was heard at a time, and since when it was or was not."""
        return next(((is_heard, turn) for turn, name, is_heard in reversed(self.turns) if name == host and turn <= at),
                    (True, 0.0))  # fmt: skip

    def suspects(self, at: float) -> bool:
        """Whether half of the hosts (a slice is one) had fallen silent together, and none of them was back."""
        silent = {host: turn for host in SLICES for is_heard, turn in [self.since(host, at)] if not is_heard}
        units = {SLICES[host] for host in silent}
        if 2 * len(units) < len(set(SLICES.values())):
            return False
        first, last = min(silent.values()), max(silent.values())
        is_back = any(is_heard and last < turn <= at for turn, _, is_heard in self.turns)
        return last + SETTLES_S < at < first + PATIENCE_S and last - first < TOGETHER_S and not is_back


def judge_successors(
    marks: Sequence[Mark], heard: Heard, reasons: Sequence[str], is_exclusive: bool
) -> Iterator[tuple[bool, str]]:
    """Yield for each attempt that began after another of its task whether it is wrong, and why it is or is not."""
    starts = defaultdict[str, list[Mark]](list)
    # By number: a host that hears but is not heard may begin its attempt after the one that replaced it.
    for mark in sorted((mark for mark in marks if mark.word == "start"), key=lambda mark: mark.attempt):
        starts[mark.task].append(mark)
    for before, after in (pair for each in starts.values() for pair in pairwise(each)):
        hosts = {mark.host for mark in marks if mark.attempt == before.attempt}  # of a gang: all
        states = [heard.since(host, after.at) for host in sorted(hosts)]
        back_s = min(after.at - turn if is_heard else 0.0 for is_heard, turn in states)
        unknown = any("never acknowledged" in reason for reason in reasons)
        text = f"{after.task}:{after.attempt} on {after.host} after {before.attempt} on {before.host}"
        if is_exclusive or unknown:
            yield False, f"{text}: {'; '.join(reasons)}"
        elif heard.suspects(after.at):
            yield True, f"{text}: the controller should have suspected itself; {'; '.join(reasons)}"
        elif back_s > SETTLES_S:
            yield True, f"{text}: {back_s:.1f} s after all of {sorted(hosts)} were heard; {'; '.join(reasons)}"
        else:
            yield False, f"{text}: begun while {sorted(hosts)} were not heard; {'; '.join(reasons)}"


def judge_job(job: dict[str, Any], lines: int) -> Iterator[str]:
    """Yield what is wrong with the end and the output of a job."""
    if job["state"] != "succeeded":
        yield f"{job['id']} ended {job['state']}: {job['error']}"
        return
    name = job["id"].rpartition("/")[2]
    expected = [f"{name} line {number}" for number in range(lines)]
    for task in job["tasks"]:
        own = [(note, text) for attempt, note, text in task["lines"] if attempt == task["attempt"]]
        told = [text for note, text in own if not note and text.startswith(f"{name} line")]
        marked = any(note for note, _ in own)
        if told != [text for text in expected if text in told] or (told != expected and not marked):
            yield f"{task['id']}:{task['attempt']} has {len(told)} of {lines} lines, and no mark: {own[-2:]}"
        if task["failures"]:
            yield f"{task['id']} was charged with failures: {task['causes']}"


class Story:
    """Six workers, two users, and the cuts."""

    def __init__(self, cluster: Cluster, size: Size, seed: int) -> None:
        self.cluster, self.size = cluster, size
        self.source = random.Random(seed)
        self.lines: dict[str, int] = {}
        self.cuts: list[object] = []

    def marks(self, name: str) -> Path:
        return self.cluster.root / "marks" / name

    def plan(self) -> Path:
        self.marks("").mkdir()
        jobs = []
        for number in range(self.size.jobs):
            name, kind = f"job-{number}", self.source.choices(("plain", "gang", "exclusive"), (6, 2, 2))[0]
            lasts_s = self.source.choice((0.02, 0.1, 0.25)) * min(self.size.seconds, 600)
            pace = self.source.uniform(0.1, 1) * min(1.0, lasts_s / 3)
            self.lines[name] = max(3, round(lasts_s / pace))
            lock = LOCK if kind == "exclusive" else ""
            script = SCRIPT.format(
                marks=self.marks(name), lock=lock, lines=self.lines[name], name=name, pace=f"{pace:.3f}"
            )
            jobs.append({"name": name, "kind": kind, "script": script, "fence_after_s": 2 * self.size.lost_after_s})
        tokens = [str(self.user(name)) for name in ("ann", "bob")]
        plan = {"address": CONTROLLER, "tokens": tokens, "jobs": jobs, "wait_s": 60 + 2 * self.size.seconds}
        place = self.cluster.root / "plan.json"
        place.write_text(json.dumps({**plan, "every_s": 0.7 * self.size.seconds / self.size.jobs}))
        return place

    def user(self, name: str) -> Path:
        token = self.cluster.root / f"{name}.token"
        done = self.cluster.iris("user", "token", "create", name, "--output", str(token))
        assert done.returncode == 0, done.stderr
        return token

    def cut_until(self, end: float) -> None:
        """Cut at random and mend again; all of it happens one after the other."""
        sets = [*((name,) for name in SLICES), *2 * (("h1", "h2", "h5"), ("h3", "h4", "h6"), tuple(SLICES))]
        while time.time() < end:
            hosts = self.source.choice(sets)
            one_way, lasts_s = self.source.random() < 0.3, self.source.uniform(*self.size.cut_s)
            begin = time.time()
            for host in hosts:
                self.cluster.hosts[host].cut(CONTROLLER.partition(":")[0] if one_way else "")
            time.sleep(lasts_s)
            for host in hosts:
                self.cluster.hosts[host].mend()
            self.cuts.append(Cut(hosts, begin, time.time(), one_way))
            time.sleep(self.source.uniform(*self.size.rest_s))

    def strike_until(self, end: float) -> None:
        """Kill and freeze at random, the controller as often as two workers, and let it run again."""
        while time.time() < end:
            name, kill = self.source.choice(["ctl", "ctl", *SLICES]), self.source.random() < 0.7
            repair = self.cluster.strike(name, SLICES.get(name, ""), kill=kill)
            pause_s = self.source.uniform(*self.size.cut_s)
            self.cuts.append(f"{'kill' if kill else 'freeze'} of {name} for {pause_s:.1f} s at {time.time():.1f}")
            time.sleep(pause_s)
            repair()
            time.sleep(self.source.uniform(*self.size.rest_s))

    def play(self) -> list[str]:
        """Return all that went wrong."""
        result = self.cluster.root / "result.json"
        argv = [sys.executable, "-m", "support.iris.outage_jobs", str(self.plan()), str(result)]
        env = {**self.cluster.environment("ctl"), "IRIS_RECONNECT_TIMEOUT": "600"}
        log = self.cluster.root / "users.log"
        users = self.cluster.hosts["ctl"].start(argv, log, env, self.cluster.root)
        (self.strike_until if self.size.strikes else self.cut_until)(time.time() + self.size.seconds)
        assert users.wait(60 + 3 * self.size.seconds) == 0, log.read_text()[-3000:]
        told = json.loads(result.read_text())
        until(lambda: not self.cluster.tasks_left(), "no task is left")
        missed = []
        for task in told["jobs"][0]["tasks"]:
            both = told["followed"].get(task["id"], []), task["lines"]
            followed, stored = ([line for line in lines if line[0] == task["attempt"]] for lines in both)
            missed += [f"{task['id']}: followed {followed}, stored {stored}"] if followed != stored else []
        return [*missed, *self.judge(told["jobs"], Heard([tuple(turn) for turn in told["heard"]]))]

    def judge(self, jobs: list[dict[str, Any]], heard: Heard) -> Iterator[str]:
        for job in jobs:
            name = job["id"].rpartition("/")[2]
            yield from judge_job(job, self.lines[name])
            marks = [Mark.read(line) for line in self.marks(name).read_text().splitlines()]
            yield from (f"overlap: {mark}" for mark in marks if mark.word == "overlap")
            reasons = [cause for task in job["tasks"] for cause in task["causes"]]
            # While the controller is away nobody can tell whom it hears.
            unjudged = job["kind"] == "exclusive" or self.size.strikes
            if self.size.strikes:
                yield from (f"{name}: {reason}" for reason in reasons if not re.search("not heard|no contact", reason))
            for is_wrong, why in judge_successors(marks, heard, reasons, unjudged):
                print("WRONG " if is_wrong else "listed", why)
                if is_wrong:
                    yield why
        print(f"{len(jobs)} jobs, {len(self.cuts)} cuts")


def play(root: Path, make_hosts: Callable[..., dict[str, Host]], size: Size, seed: int) -> None:
    cluster = Cluster(root, make_hosts("ctl", *SLICES), size.lost_after_s)
    token = cluster.token(uses=len(SLICES))
    for name, slice_name in SLICES.items():
        cluster.start_worker(name, slice_name, "--join-token-file", str(token))
    until(lambda: cluster.connected() == set(SLICES), "six workers are connected")
    story = Story(cluster, size, seed)
    found = story.play()
    assert found == [], "\n".join([f"seed {seed}", *map(str, story.cuts), *found])


def _setting(name: str, default: float) -> float:
    return float(os.environ.get(f"IRIS_OUTAGE_{name}", default))


def mark(attempt: int, host: str, at: float) -> Mark:
    return Mark("start", "/ann/job/0", attempt, host, at)


@pytest.mark.parametrize(
    ("silent", "back", "begins", "is_wrong"),
    [
        (("h1",), 90, 20, False),
        (("h1",), 20, 20.5, False),
        (("h1",), 20, 30, True),
        (("h2",), 90, 15, True),
        (("h1", "h3"), 90, 20, True),
        (("h1", "h2"), 90, 20, False),
        (("h1", "h3"), 900, 320, False),
    ],
    ids=["silent", "just back", "long back", "another silent", "half", "one slice", "patience is over"],
)
def test_a_successor_is_right_while_its_host_alone_is_silent(
    silent: tuple[str, ...], back: float, begins: float, is_wrong: bool
) -> None:
    heard = Heard([(10, host, False) for host in silent] + [(back, host, True) for host in silent])
    marks = [mark(0, "h1", 1), mark(2, "h5", begins)]
    assert [wrong for wrong, _ in judge_successors(marks, heard, [], False)] == [is_wrong]


def test_a_replaced_attempt_may_begin_late_on_a_silent_host() -> None:
    marks = [mark(1, "h6", 20), mark(0, "h5", 25)]
    assert not any(wrong for wrong, _ in judge_successors(marks, Heard([(10, "h5", False)]), [], False))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("strikes", [False, True], ids=["cuts", "strikes"])
def test_short(tmp_path: Path, make_hosts: Callable[..., dict[str, Host]], strikes: bool) -> None:
    size = Size(seconds=4, jobs=10, cut_s=(2.2, 3), rest_s=(0.5, 1), lost_after_s=2)
    if strikes:
        size = replace(size, seconds=6, cut_s=(0.1, 2.5), rest_s=(0.1, 0.5), strikes=True)
    play(tmp_path, make_hosts, size, random.randrange(2**32))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("strikes", [False, True], ids=["cuts", "strikes"])
def test_long(tmp_path: Path, make_hosts: Callable[..., dict[str, Host]], strikes: bool) -> None:
    size = Size(
        seconds=60 * _setting("MINUTES", 20), jobs=int(_setting("JOBS", 300)), cut_s=(5, _setting("CUT", 300)),
        rest_s=(5, 30), lost_after_s=int(_setting("LOST_AFTER", 60)),
    )  # fmt: skip
    if strikes:
        size = replace(size, cut_s=(0.1, 90), rest_s=(1, 10), strikes=True)
    play(tmp_path, make_hosts, size, int(_setting("SEED", random.randrange(2**32))))
