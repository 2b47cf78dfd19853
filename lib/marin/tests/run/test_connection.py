"""Reaching a cluster that is known by its file, or by an address of Ray's own kind."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fray.testing import eventually
from marin.run import connection
from marin.run.cluster_target import ClusterTarget
from rigging.errors import Unavailable

# Listens as `ray dashboard --port P` does, and has a child as that has ssh.
DASHBOARD = """#!{python}
import os, socket, subprocess, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
child = subprocess.Popen(["sleep", "600"])
open({notes!r}, "w").write(f"{{child.pid}} {{' '.join(sys.argv[1:])}}")
server = socket.create_server(("127.0.0.1", port))
time.sleep(600)
"""
FAILING = """#!/bin/sh
echo "Head node of cluster marin not found!"
exit 1
"""


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterTarget:
    return ClusterTarget("", "--cluster marin", file=tmp_path / "marin.yaml")


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "ray"
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(connection.shutil, "which", lambda name, path=None: str(program))


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_tunnel_is_open_as_long_as_it_is_needed(
    cluster: ClusterTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    install(monkeypatch, tmp_path, DASHBOARD.format(python=sys.executable, notes=str(notes)))
    with contextlib.suppress(KeyboardInterrupt), connection.open_connection(cluster) as url:
        port = int(url.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        child, *words = notes.read_text().split()
        assert words == ["dashboard", "--port", str(port), "--remote-port", "8265", str(cluster.file)]
        assert os.getpgid(int(child)) != os.getpgid(0)
        raise KeyboardInterrupt
    assert not runs(int(child))


OPENS = """
import sys, time
from pathlib import Path
from fray.testing import eventually
from marin.run import connection
from marin.run.cluster_target import ClusterTarget
connection.find_ray = lambda: sys.argv[1]
with connection.open_connection(ClusterTarget("", "", file=Path("marin.yaml"))) as url:
    print(url, flush=True)
    time.sleep(600)
"""


def takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_tunnel_ends_when_who_opened_it_is_killed(tmp_path: Path) -> None:
    notes, ray = tmp_path / "notes", tmp_path / "ray"
    ray.write_text(DASHBOARD.format(python=sys.executable, notes=str(notes)))
    ray.chmod(0o755)
    with subprocess.Popen([sys.executable, "-c", OPENS, str(ray)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline()
        child = int(notes.read_text().split()[0])
        assert runs(child)
        process.kill()
    # The processes of a group die one after the other.
    eventually(lambda: not runs(child), "what the tunnel had started is gone, too")
    eventually(lambda: not takes_connections(int(url.rpartition(":")[2])), "and the tunnel itself")
    assert not runs(child)


def test_ssh_shares_no_connection_that_would_outlive_the_tunnel(
    cluster: ClusterTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "ssh was given: $*"\n')
    ssh.chmod(0o755)
    install(monkeypatch, tmp_path, "#!/bin/sh\nssh -o ControlMaster=auto -L 1:2:3 head\nexit 1\n")
    ray = str(tmp_path / "bin" / "ray")
    monkeypatch.setattr(connection.shutil, "which", lambda name, path=None: str(ssh) if name == "ssh" else ray)
    # Of an option that is given twice, ssh takes the first.
    said = "ssh was given: -o ControlMaster=no -o ControlPath=none -o ControlMaster=auto -L 1:2:3 head"
    with pytest.raises(Unavailable, match=said), connection.open_connection(cluster):
        pass


def test_a_port_that_is_taken_is_told(cluster: ClusterTarget, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(Unavailable, match=f"port {port} of this machine.*another tunnel"),
            connection.open_connection(cluster, port=port),
        ):
            pass


def test_a_tunnel_that_cannot_be_had_says_what_ray_said(
    cluster: ClusterTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path, FAILING)
    with (
        pytest.raises(Unavailable, match=r"(?s)ended; it said:.*Head node of cluster marin not found"),
        connection.open_connection(cluster),
    ):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_that_ray_would_look_up_for_minutes_is_probed_first(address: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        target = ClusterTarget(address.format(taken.getsockname()[1]), "RAY_ADDRESS", bootstrap=True)
        with pytest.raises(Unavailable, match=r"RAY_ADDRESS.*refused.*dashboard"), connection.open_connection(target):
            pass


def test_an_address_that_only_ray_can_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    target = ClusterTarget("auto", "RAY_ADDRESS", bootstrap=True)
    monkeypatch.setitem(sys.modules, "ray.dashboard.utils", None)
    with pytest.raises(Unavailable, match="RAY_ADDRESS: only Ray can look up auto"), connection.open_connection(target):
        pass
    found: Any = SimpleNamespace(get_address_for_submission_client=lambda address: f"http://of-{address}:8265")
    monkeypatch.setitem(sys.modules, "ray.dashboard.utils", found)
    with connection.open_connection(target) as url:
        assert url == "http://of-auto:8265"

    def fail(address: str) -> str:
        raise ConnectionError("no head")

    found.get_address_for_submission_client = fail
    with (
        pytest.raises(Unavailable, match=r"Ray cannot look up auto \(RAY_ADDRESS\): no head"),
        connection.open_connection(target),
    ):
        pass


def test_without_the_ray_program_it_is_said_how_to_get_it(
    cluster: ClusterTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.shutil, "which", lambda name, path=None: None)
    with pytest.raises(Unavailable, match=r"pip install 'marin\[ray\]'"), connection.open_connection(cluster):
        pass
