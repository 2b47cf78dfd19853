"""The story of a cluster with kill -9 at chosen requests: the rest is finished or undone, nothing orphaned or doubled.

IRIS_KILLS_SEED shuffles which kills meet in a run; the four runs have each kill once, 20 in all.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil
import pytest

from iris.autoscale.gcp.ownership import OWNER_LABEL
from iris.client import IrisClient
from iris.client.connection.discovery import find_cluster
from iris.cluster.types import JobState
from support.google.cloud import Call, Machine
from support.google.server import Cut
from support.iris.cloud_story import CONTROLLER, RUN, Evidence, Story, begin, cloud_story, faults, until

SEED: Final = int(os.environ.get("IRIS_KILLS_SEED", "35"))
Point = tuple[str, Cut]
STARTS: Final[list[Point]] = [
    ("GET .../aggregated/instances", Cut.HANGS),
    ("POST .../instances", Cut.HANGS),
    ("POST .../instances", Cut.ANSWER_HANGS),
    ("GET .../getGuestAttributes", Cut.HANGS),
]
"""Where `cluster start` is killed: before the first call, before and after the creation, while it waits."""
CREATIONS: Final[list[Point | None]] = [
    ("POST .../europe-west4-b/nodes", Cut.HANGS),
    ("POST .../europe-west4-b/nodes", Cut.ANSWER_HANGS),
    ("POST .../us-west4-a/nodes", Cut.ANSWER_HANGS),
    None,
]
"""Where the controller is killed first: before and after a call, in a stock-out or not; None while hosts boot."""
LOSSES: Final = ["a host, with notice", "a host", "the slice, with notice", "the slice"]
REPLACEMENTS: Final[list[Point | None]] = [
    ("DELETE .../nodes/...", Cut.HANGS),
    ("DELETE .../nodes/...", Cut.ANSWER_HANGS),
    ("POST .../us-west4-a/nodes", Cut.ANSWER_HANGS),
    None,
]
"""Where the controller is killed then: while it deletes, while it creates again; None while all hosts are joined."""
STOPS: Final[list[Point]] = [
    ("DELETE .../nodes/...", Cut.HANGS),
    ("DELETE .../nodes/...", Cut.ANSWER_HANGS),
    ("DELETE .../instances/...", Cut.HANGS),
    ("DELETE .../instances/...", Cut.ANSWER_HANGS),
]
"""Where `cluster stop` is killed: while the controller deletes, between list and delete, between delete and list."""


class Record:
    """The test server's records: the requests of each caller, and the machines that ran."""

    def __init__(self, story: Story) -> None:
        self.owners: set[str] = set()
        self.booted: Counter[tuple[str, int]] = Counter()
        self._boot = story.running.boot
        story.google.on_call, story.google.on_boot = self._note, self._booted

    def _note(self, call: Call) -> None:
        if call.method.id.endswith((".create", ".insert")):
            self.owners.add(call.body.get("labels", {}).get(OWNER_LABEL, ""))

    def _booted(self, machine: Machine) -> None:
        self.booted[machine.name, machine.number] += 1
        self._boot(machine)


def controller_of(story: Story) -> int | None:
    """Return the process id of the controller on its machine."""
    for machine, process in list(story.running.processes.items()):
        if machine.name == CONTROLLER:
            for each in psutil.Process(process.pid).children(recursive=True):
                try:
                    if "serve" in each.cmdline() and each.status() != psutil.STATUS_ZOMBIE:
                        return each.pid
                except psutil.NoSuchProcess:
                    continue
    return None


def kill_controller(story: Story) -> None:
    """Kill the controller, which its machine starts again."""
    killed = controller_of(story)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: controller_of(story) not in (None, killed))


@contextmanager
def held(story: Story, point: Point, kill: Callable[[], object]) -> Iterator[None]:
    """Hold the first such request of what the block begins, and kill."""
    story.google.fail_next(*point)
    yield
    until(lambda: not story.google.failures_left)
    kill()
    story.google.release()


def lose(story: Story, name: str, loss: str, source: random.Random) -> None:
    """Kill hosts of a slice; without notice nobody but their silence tells the cluster."""
    machines = story.google.machines(name)
    host = source.randrange(len(machines))
    whole = loss.startswith("the slice")
    if "notice" in loss:
        story.google.preempt(name, None if whole else host)
    else:
        for machine in machines if whole else machines[host : host + 1]:
            story.running.stop(machine)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with cloud_story(tmp_path) as made:
        yield made


GOOD: Final = Evidence({"lab-0a"}, {(CONTROLLER, 0): 1, ("v5e-0", 0): 1, ("v5e-0", 1): 1}, {"v5e-0"}, 1)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (GOOD, []),
        (replace(GOOD, booted={**GOOD.booted, ("v5e-0", 1): 2}), ["v5e-0 host 1 booted 2 times"]),
        (replace(GOOD, booted={**GOOD.booted, (CONTROLLER, 0): 2}), ["lab-controller host 0 booted 2 times"]),
        (
            replace(GOOD, booted={**GOOD.booted, ("v5e-1", 0): 1}, rows={"v5e-0", "v5e-1"}),
            ["2 slices booted where 1 were needed: v5e-0, v5e-1"],
        ),
        (replace(GOOD, rows={"v5e-7"}), ["v5e-0 has no row"]),
        (replace(GOOD, left={CONTROLLER, "v5e-0"}), [f"{it} is left after the stop" for it in (CONTROLLER, "v5e-0")]),
        (replace(GOOD, owners={"lab-0a", "lab-0b"}), ["owner labels: lab-0a, lab-0b"]),
        (replace(GOOD, owners={""}), ["owner labels: "]),
    ],
)
def test_a_slice_doubled_without_a_row_or_left_is_found(seen: Evidence, told: list[str]) -> None:
    assert faults(seen) == told


@pytest.mark.process
@pytest.mark.soak
@pytest.mark.timeout(470)
@pytest.mark.parametrize("run", range(4))
def test_five_kills_orphan_and_double_nothing(run: int, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", story.environment["IRIS_STATE_DIR"])
    source = random.Random(SEED)
    points = [source.sample(each, 4)[run] for each in (STARTS, CREATIONS, LOSSES, REPLACEMENTS, STOPS)]
    start, creation, loss, replacement, stop = points
    print(f"IRIS_KILLS_SEED={SEED}, run {run}: {points}")
    record, google, cloud = Record(story), story.google, story.google.cloud
    google.zone("europe-west4-b").stock_out = True

    process = begin(story.environment, "cluster", "start", str(story.file))
    with held(story, start, process.kill):
        pass
    process.communicate()
    assert "cluster lab " in story.iris("cluster", "start", str(story.file))

    if creation is None:
        google.zone("us-west4-a").slow_boots = True
        story.iris("--cluster=lab", *RUN)
        until(lambda: bool(story.zones_tried()[1:] and story.slices()))
        kill_controller(story)
        google.zone("us-west4-a").slow_boots = False
    else:
        with held(story, creation, lambda: kill_controller(story)):
            story.iris("--cluster=lab", *RUN)
    with IrisClient.of(find_cluster("lab")) as client:
        until(lambda: bool(client.list_jobs()))
        (job,) = client.list_jobs()

        def connected() -> int:
            return sum(worker.connected for worker in client.cluster_status().workers)

        until(lambda: client.status(job.job_id).state is JobState.RUNNING)
        (first,) = story.slices()
        if replacement is None:
            kill_controller(story)
            until(lambda: connected() == 4)
            assert {task.attempt for task in client.list_tasks(job.job_id)} == {0}, "no task has noticed"
            lose(story, first, loss, source)
        else:
            with held(story, replacement, lambda: kill_controller(story)):
                lose(story, first, loss, source)
        # Four hosts of another slice boot, on a loaded machine.
        until(lambda: client.status(job.job_id).state is JobState.SUCCEEDED, 240)
        tasks = client.list_tasks(job.job_id)
        said = [line.text for task in tasks for line in client.read_logs(task.task_id)]
        assert sum("trained by" in text for text in said) == len(tasks) == 4, said
        until(lambda: not story.slices())
        client.operator.create_slice(*(each.scale_group for each in client.operator.slices() if each.name == first))
        until(lambda: len(story.slices()) == 1 and all(node["state"] == "READY" for node in cloud.nodes.values()))
        rows = {each.name for each in client.operator.slices()}

    process = begin(story.environment, "--cluster=lab", "cluster", "stop", "--yes")
    with held(story, stop, process.kill):
        pass
    process.communicate()
    assert "cluster lab has no machines" in story.iris("--cluster=lab", "cluster", "stop", "--yes")
    calls = len(story.zones_tried())
    until(lambda: not story.running.processes)
    assert len(story.zones_tried()) == calls
    left = {name.rpartition("/")[2] for kind in (cloud.nodes, cloud.queued, cloud.instances) for name in kind}
    # One slice is lost, one replaces it, and one is created by the operator.
    assert faults(Evidence(record.owners, record.booted, rows, needed=3, left=left)) == []
