"""The client has to run where Linux's own calls are not: on macOS. Played here by taking them away."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.iris.embedded_cluster import IRIS, REPOSITORY, Cluster, running_cluster

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(200)]

ONLY_LINUX = """
import os, signal, socket, sys

for module, names in {
    os: ("pidfd_open", "sched_getaffinity", "sched_setaffinity", "memfd_create", "eventfd", "splice", "getrandom",
         "O_PATH", "O_TMPFILE", "posix_fadvise", "posix_fallocate", "sendfile", "setresuid", "copy_file_range",
         "getxattr", "setxattr"),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPWR"),
    socket: ("SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PASSCRED", "AF_NETLINK"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

def no_proc(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "there is no such thing on macOS", arguments[0])

sys.addaudithook(no_proc)
sys.platform = "darwin"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as started:
        yield started


def elsewhere(cluster: Cluster, place: Path, *words: str, **variables: str) -> str:
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(ONLY_LINUX)
    env = {**cluster.environment(variables), "PYTHONPATH": str(place)}
    done = subprocess.run(words, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_an_experiment_in_the_own_process(cluster: Cluster, tmp_path: Path) -> None:
    played = "import os, sys; print(sys.platform, hasattr(os, 'pidfd_open'), os.path.exists('/proc'))"
    assert elsewhere(cluster, tmp_path / "mac", sys.executable, "-c", played).split()[:2] == ["darwin", "False"]
    told = elsewhere(cluster, tmp_path / "mac", sys.executable, "-m", "experiments.hello_world")
    assert "4950" in told
    told = elsewhere(
        cluster, tmp_path / "mac", sys.executable, "-m", "experiments.tutorials.hello_world_remote",
        FRAY_CLIENT="local", MARIN_PREFIX=str(tmp_path / "again"),
    )  # fmt: skip
    assert "4950" in told


def test_a_job_on_a_cluster_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.iris("cluster", "start", "--local").code == 0
    told = json.loads((cluster.state_dir / "cluster.json").read_text())
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(told["token"])
    at = [str(IRIS), "--controller-url", told["address"], "--token-file", str(token)]
    mac = tmp_path / "mac"
    submitted = elsewhere(
        cluster, mac, *at, "job", "run", "--job-name", "far", "--", "python", "-m", "experiments.hello_world"
    )
    assert "4950" in submitted
    assert "far" in elsewhere(cluster, mac, *at, "job", "list")
    assert "4950" in elsewhere(cluster, mac, *at, "job", "logs", "far")
    assert "succeeded" in elsewhere(cluster, mac, *at, "job", "summary", "far")
