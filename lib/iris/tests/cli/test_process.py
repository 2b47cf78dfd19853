"""`iris process`, with a real cluster."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from support.iris.embedded_cluster import Cluster, running_cluster

pytestmark = pytest.mark.process
SCRIPT = """
import threading, time
def waits(): threading.Event().wait()
def computes():
    while True:
        sum(range(10_000))
        time.sleep(0.001)
threading.Thread(target=computes, daemon=True).start()
print("up", flush=True)
waits()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("process")) as cluster:
        command = ("python", "-c", SCRIPT, "--token", "hunter2secret")
        begun = cluster.iris("job", "run", "--no-workspace", "--no-wait", "--job-name", "it", "--", *command)
        assert begun.code == 0, begun.text
        eventually(lambda: "up" in cluster.iris("job", "logs", "it").out, "the task runs")
        yield cluster


@pytest.mark.parametrize("target", ["it", "worker/local", "controller"])
def test_the_status_of_each(cluster: Cluster, target: str) -> None:
    shown = cluster.iris("process", "status", target)
    assert (shown.code, "python" in shown.out) == (0, True), shown.text
    first = json.loads(cluster.iris("process", "status", target, "--json").out)[0]
    assert first["memory_bytes"] > 1_000_000
    assert "hunter2secret" not in shown.out


def test_the_log_of_each(cluster: Cluster) -> None:
    assert cluster.iris("process", "logs", "it").out == "up\n"
    assert "isolation between tasks" in cluster.iris("process", "logs", "worker/local").out
    assert "serving on" in cluster.iris("process", "logs", "controller").out


@pytest.mark.skipif(not shutil.which("py-spy", path=str(Path(sys.executable).parent)), reason="py-spy is not installed")
def test_stacks_and_a_flame_graph(cluster: Cluster, tmp_path: Path) -> None:
    dumped = cluster.iris("process", "profile", "threads", "it/0")
    assert all(f"{name} (" in dumped.out for name in ("waits", "computes")), dumped.text
    assert "hunter2secret" not in dumped.out
    place = tmp_path / "cpu.svg"
    made = cluster.iris("process", "profile", "cpu", "it", "--seconds", "2", "--output", str(place))
    assert (made.code, made.err) == (0, f"iris: wrote {place}\n"), made.text
    assert "computes" in place.read_text()


def test_what_cannot_be_had_is_told(cluster: Cluster) -> None:
    assert "there is no worker 'w9'" in cluster.iris("process", "status", "worker/w9").err
    over = cluster.iris("job", "run", "--no-workspace", "--job-name", "over", "--", "true")
    assert over.code == 0, over.text
    assert "over/0 is succeeded: it must be running" in cluster.iris("process", "status", "over").err
