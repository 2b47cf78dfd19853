"""A whole local cluster on a small disk: what does not fit is told, and everything goes on."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster, Result
from support.iris.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.process

OPTIONS = ("--no-workspace", "--memory", "100MB", "--job-name")


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk that a test's cluster has: all of it, or (param "worker") its worker and tasks alone."""
    place = tmp_path / "disk" / "iris" / "worker" if getattr(request, "param", "") == "worker" else tmp_path / "disk"
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with small_disk(place) as found:
        if found is None:
            pytest.skip("no tmpfs can be mounted here (root is needed): what a full disk does is NOT tested")
        yield found


@pytest.fixture
def small(cluster: Cluster, disk: SmallDisk, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with a small disk."""
    small = dataclasses.replace(cluster, state_dir=tmp_path / "disk" / "iris")
    yield small
    disk.empty()
    small.iris("cluster", "stop", "--force")


def submit(cluster: Cluster, workspace: Path, name: str, code: str) -> Result:
    return cluster.iris("job", "run", *OPTIONS, name, "--disk", "1MB", "--", "python3", "-c", code, cwd=workspace)


def test_more_output_than_the_disk_holds(small: Cluster, disk: SmallDisk, workspace: Path) -> None:
    noise = 'print("line %06d" % i, base64.b85encode(random.randbytes(72)).decode())'  # packing makes it no smaller
    done = submit(small, workspace, "big", f"import base64, random\nfor i in range(330000): {noise}")
    assert done.code == 0, done.text
    assert "big succeeded" in done.err
    logs = small.iris("job", "logs", "big")
    assert logs.out.startswith("line 000000 ")
    assert logs.out.splitlines()[-1].startswith("line 329999 "), "the newest is kept"
    lost = re.findall(r"^iris: task \S+: ([\d,]+) bytes of (?:output|the log) lost: ", logs.err, re.MULTILINE)
    assert sum(int(number.replace(",", "")) for number in lost) > 10 * 2**20
    # Killed at the worst moment, it starts again, and what was true before is true.
    disk.fill()
    small.iris("cluster", "stop", "--force")
    listed = small.iris("job", "list", "--json")
    assert listed.code == 0, listed.text
    found = [(job["job_id"].rpartition("/")[2], job["state"]) for job in json.loads(listed.out)]
    assert found == [("big", "succeeded")]
    refused = submit(small, workspace, "more", "pass")
    assert refused.code == 3, refused.text
    assert "disk is nearly full" in refused.err
    disk.empty()
    again = submit(small, workspace, "more", "pass")
    assert again.code == 0, again.text


# A task that fills the worker's disk, once its first 1,000 lines are there, and goes on printing.
FILLING = """
import glob, os, sys, time
worker = {worker!r}
for i in range(1000): print("line %06d" % i, "x" * 90)
sys.stdout.flush()
while sum(map(os.path.getsize, glob.glob(worker + "/logs/*"))) < 100000: time.sleep(0.01)
with open(worker + "/filler", "wb", buffering=0) as file:
    try:
        while True: file.write(bytes(4096))
    except OSError: pass
for i in range(1000, 40000): print("line %06d" % i, "x" * 90)
sys.stdout.flush()
"""


@pytest.mark.parametrize("disk", ["worker", "shared"], indirect=True)
def test_lost_output_is_in_the_log_and_what_the_worker_lost_in_the_summary(small: Cluster, workspace: Path) -> None:
    done = submit(small, workspace, "loss", FILLING.format(worker=str(small.state_dir / "worker")))
    (small.state_dir / "worker/filler").unlink()
    assert done.code == 0, done.text
    summary = json.loads(small.iris("job", "summary", "loss", "--json").out)
    assert summary["state"] == "succeeded"
    logs = small.iris("job", "logs", "loss")
    assert len(logs.out.splitlines()) < 40_000
    # Which of them loses it is open where they share a disk: where a commit of the controller gives up its reserve
    # after the task has filled the disk, the worker has the room of that, and the controller takes no log.
    workers, controllers = "output lost: no space left on the worker's", "the log lost: .*the controller's"
    lost = re.search(rf"[\d,]+ bytes of ({workers}|{controllers}) disk", logs.err)
    assert lost is not None, logs.err
    if workers in logs.err:
        assert workers in summary["tasks"][0]["error"]
