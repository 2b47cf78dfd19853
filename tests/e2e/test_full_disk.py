"""A whole local cluster on a small disk: what does not fit is told, and everything goes on."""

import dataclasses
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
    with small_disk(tmp_path / "disk", getattr(request, "param", "20m")) as found:
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


@pytest.mark.parametrize("disk", ["400m"], indirect=True)
def test_who_fills_the_hosts_disk_is_ended_and_others_go_on(small: Cluster, disk: SmallDisk, workspace: Path) -> None:
    """Without a stated --disk; the neighbour runs through it, a job that comes meanwhile begins once there is room."""
    run = ("job", "run", "--no-workspace", "--cpu", "0.1", "--job-name")
    assert small.iris(*run, "neighbour", "--no-wait", "--", "sh", "-c", "sleep 8; echo done", cwd=workspace).code == 0
    hog = "import time\nwith open('x', 'wb', 0) as file:\n    while True:\n        try: file.write(bytes(1 << 16))\n"
    hog += "        except OSError: time.sleep(0.1)\n"  # the controller gives up its reserve, and that is taken, too
    assert small.iris(*run, "hog", "--no-wait", "--", "python3", "-c", hog, cwd=workspace).code == 0
    assert small.iris("job", "wait", "hog").code != 0
    assert (
        "out of disk: the host's disk was full, and the attempt had written the most"
        in small.iris("job", "summary", "hog").out
    )
    later = small.iris(*run, "later", "--", "true", cwd=workspace)
    assert later.code == 0, later.text
    assert small.iris("job", "wait", "neighbour").code == 0
    assert " cordoned" not in small.iris("cluster", "worker", "list").out
