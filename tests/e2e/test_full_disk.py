"""A whole local cluster on a small disk: what does not fit is told, and everything goes on."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.testing.small_disk import SmallDisk, small_disk
from rigging.testing import eventually

LINE = 'print("line %06d" % i, "x" * 90)'


@pytest.fixture
def disk(tmp_path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as found:
        if found is None:
            pytest.skip("no tmpfs can be mounted here (root is needed): what a full disk does is NOT tested")
        yield found


@pytest.fixture
def small(cluster, disk):
    """A cluster whose state, worker and tasks are on the small disk."""
    small = dataclasses.replace(cluster, state_dir=disk.root / "iris")
    yield small
    disk.empty()
    small.iris("cluster", "stop", "--force")


def submit(cluster, workspace, name: str, code: str):
    options = ("--no-workspace", "--disk", "1MB", "--memory", "100MB", "--job-name", name)
    return cluster.iris("job", "run", *options, "--", "python3", "-c", code, cwd=workspace)


def lost(text: str) -> int:
    found = re.findall(r"^iris: task \S+: ([\d,]+) bytes of (?:output|the log) lost: ", text, re.MULTILINE)
    return sum(int(number.replace(",", "")) for number in found)


def test_more_output_than_the_disk_holds(small, disk, workspace):
    noise = 'print("line %06d" % i, base64.b85encode(random.randbytes(72)).decode())'  # packing makes it no smaller
    done = submit(small, workspace, "big", f"import base64, random\nfor i in range(330000): {noise}")
    assert done.code == 0, done.text
    assert "big succeeded" in done.err
    logs = small.iris("job", "logs", "big")
    assert logs.out.startswith("line 000000 ")
    assert logs.out.splitlines()[-1].startswith("line 329999 "), "the newest is kept"
    assert lost(logs.err) > 10 * 2**20
    # Killed at the worst moment, it starts again, and what was true before is true.
    disk.fill()
    small.iris("cluster", "stop", "--force")
    listed = small.iris("job", "list", "--json")
    assert listed.code == 0, listed.text
    assert [(job["job_id"].rpartition("/")[2], job["state"]) for job in json.loads(listed.out)] == [
        ("big", "succeeded")
    ]
    refused = submit(small, workspace, "more", "pass")
    assert refused.code == 3, refused.text
    assert "disk is nearly full" in refused.err
    disk.empty()
    again = submit(small, workspace, "more", "pass")
    assert again.code == 0, again.text


@pytest.fixture
def small_worker(cluster, tmp_path):
    """A cluster whose worker and tasks have a small disk to themselves; its controller has room."""
    small = dataclasses.replace(cluster, state_dir=tmp_path / "iris")
    small.state_dir.mkdir(mode=0o700)
    with small_disk(small.state_dir / "worker") as found:
        if found is None:
            pytest.skip("no tmpfs can be mounted here (root is needed): what a full disk does is NOT tested")
        yield small
        found.empty()
        small.iris("cluster", "stop", "--force")


def filling(worker: Path) -> str:
    """The code of a task that fills the worker's disk, once its first 1,000 lines are there, and goes on printing."""
    return f"""
import glob, os, sys, time
for i in range(1000): {LINE}
sys.stdout.flush()
while sum(map(os.path.getsize, glob.glob("{worker}/logs/*"))) < 100000: time.sleep(0.01)
with open("{worker}/filler", "wb", buffering=0) as file:
    try:
        while True: file.write(bytes(4096))
    except OSError: pass
for i in range(1000, 40000): {LINE}
sys.stdout.flush()
"""


def test_output_lost_on_the_workers_disk_is_in_the_log_and_in_the_summary(small_worker, workspace):
    done = submit(small_worker, workspace, "loss", filling(small_worker.state_dir / "worker"))
    assert done.code == 0, done.text
    summary = json.loads(small_worker.iris("job", "summary", "loss", "--json").out)
    assert summary["state"] == "succeeded"
    told = re.compile(r"[\d,]+ bytes of output lost: no space left on the worker's disk")
    assert told.search(summary["tasks"][0]["error"]), summary
    logs = small_worker.iris("job", "logs", "loss")
    assert told.search(logs.err), logs.err
    assert logs.out.startswith("line 000000 ")
    assert 1000 <= len(logs.out.splitlines()) < 40_000


def test_output_lost_on_a_disk_that_controller_and_worker_share_is_in_the_log(small, workspace):
    done = submit(small, workspace, "loss", filling(small.state_dir / "worker"))
    (small.state_dir / "worker/filler").unlink()
    assert done.code == 0, done.text
    summary = json.loads(small.iris("job", "summary", "loss", "--json").out)
    assert summary["state"] == "succeeded"
    logs = small.iris("job", "logs", "loss")
    assert len(logs.out.splitlines()) < 40_000
    # Which of them loses it is open: where a commit of the controller gives up its reserve after the task has filled
    # the disk, the worker has the room of that, and the controller, which keeps it for its database, takes no log.
    workers, controllers = "output lost: no space left on the worker's", "the log lost: .*the controller's"
    assert re.search(rf"[\d,]+ bytes of ({workers}|{controllers}) disk", logs.err), logs.err
    if workers in logs.err:
        assert workers in summary["tasks"][0]["error"]


def test_room_that_is_made_is_used(small, disk, workspace):
    options = ("--no-workspace", "--memory", "100MB", "--no-wait", "--job-name")
    assert small.iris("job", "run", *options, "first", "--", "true", cwd=workspace).code == 0
    disk.fill(leave=4 * 2**20)
    eventually(lambda: worker_disk(small) < 10 * 2**20, "the worker says that its disk is full")
    waits = small.iris("job", "run", *options, "waits", "--disk", "10MB", "--", "true", cwd=workspace)
    assert waits.code == 0, waits.text
    reason = json.loads(small.iris("job", "summary", "waits", "--json").out)["pending_reason"]
    assert reason.startswith("needs 10 MiB of disk; worker local has "), reason
    disk.empty()
    eventually(lambda: "succeeded" in small.iris("job", "summary", "waits").out, "it runs")


def worker_disk(cluster) -> int:
    (worker,) = json.loads(cluster.iris("cluster", "worker", "list", "--json").out)
    return worker["disk_bytes"]
