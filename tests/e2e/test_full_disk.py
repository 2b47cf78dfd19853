"""A whole local cluster on a small disk: what does not fit is told, and everything goes on."""

import dataclasses
import json
import re
from collections.abc import Iterator

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
    done = submit(small, workspace, "big", f"for i in range(330000): {LINE}")
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


def test_output_lost_on_the_workers_disk_is_in_the_log_and_in_the_summary(small, workspace):
    # The task itself fills the disk that its log is on, and goes on printing.
    code = f"""
import os
for i in range(1000): {LINE}
with open("{small.state_dir}/filler", "wb", buffering=0) as file:
    try:
        while True: file.write(bytes(4096))
    except OSError: pass
import sys
for i in range(1000, 40000): {LINE}
sys.stdout.flush()
"""
    done = submit(small, workspace, "loss", code)
    (small.state_dir / "filler").unlink()
    assert done.code == 0, done.text
    summary = json.loads(small.iris("job", "summary", "loss", "--json").out)
    assert summary["state"] == "succeeded"
    assert re.search(r"[\d,]+ bytes of output lost: no space left on the worker's disk", summary["tasks"][0]["error"])
    logs = small.iris("job", "logs", "loss")
    # Controller and worker share the disk that is full: where even the worker's note had no room, the controller's
    # stands in its place. The cause is in the summary either way.
    assert re.search(
        r"[\d,]+ bytes of (output lost: no space left on the worker's|the log lost: .*the controller's) disk",
        logs.err,
    )
    assert 0 < len(logs.out.splitlines()) < 40_000


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
