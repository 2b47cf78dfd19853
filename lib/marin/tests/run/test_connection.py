"""Reaching a cluster that is known by its file, or by an address of Ray's own kind."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fray.testing.waiting import eventually
from marin.run import connection
from marin.run.cluster_target import ClusterTarget
from rigging.errors import Unavailable
from rigging.extras import MissingExtra
from support.rigging.processes import is_gone

# Listens as `ray dashboard --port P` does, and has a child as that has ssh.
DASHBOARD = """#!{python} -S
import os, socket, subprocess, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
child = subprocess.Popen(["sleep", "600"])
open({notes!r}, "w").write(f"{{child.pid}} {{' '.join(sys.argv[1:])}}")
server = socket.create_server(("127.0.0.1", port))
time.sleep(600)
"""
BY_FILE = ClusterTarget("", "--cluster marin", file=Path("marin.yaml"))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a program that is found by its name from then on; returns where."""
    monkeypatch.setattr(connection.shutil, "which", lambda name, path=None: str(tmp_path / name))

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / name)

    return write


def takes_connections(url: str) -> bool:
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=5).close()
        return True
    return False


def refusal(target: ClusterTarget, port: int | None = None) -> str:
    with pytest.raises(Unavailable) as refused, connection.open_connection(target, port=port):
        pass
    return str(refused.value)


def test_a_tunnel_is_open_as_long_as_it_is_needed(install: Callable[[str, str], str], tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    install("ray", DASHBOARD.format(python=sys.executable, notes=str(notes)))
    with contextlib.suppress(KeyboardInterrupt), connection.open_connection(BY_FILE) as url:
        assert takes_connections(url)
        child, *words = notes.read_text().split()
        assert words == ["dashboard", "--port", url.rpartition(":")[2], "--remote-port", "8265", "marin.yaml"]
        assert os.getpgid(int(child)) != os.getpgid(0)
        raise KeyboardInterrupt
    assert is_gone(int(child))


OPENS = """
import sys, time
from pathlib import Path
from marin.run import connection
from marin.run.cluster_target import ClusterTarget
connection.find_ray = lambda: sys.argv[1]
with connection.open_connection(ClusterTarget("", "", file=Path("marin.yaml"))) as url:
    print(url, flush=True)
    time.sleep(600)
"""


@pytest.mark.process
def test_a_tunnel_ends_when_who_opened_it_is_killed(install: Callable[[str, str], str], tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    ray = install("ray", DASHBOARD.format(python=sys.executable, notes=str(notes)))
    with subprocess.Popen([sys.executable, "-c", OPENS, ray], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline()
        child = int(notes.read_text().split()[0])
        assert not is_gone(child)
        process.kill()
    # The processes of a group die one after the other.
    eventually(lambda: is_gone(child), "what the tunnel had started is gone, too")
    eventually(lambda: not takes_connections(url), "and the tunnel itself")


def test_a_tunnel_that_cannot_be_had_says_why(install: Callable[[str, str], str]) -> None:
    install("ssh", '#!/bin/sh\necho "ssh was given: $*"\n')
    install("ray", "#!/bin/sh\nssh -o ControlMaster=auto -L 1:2:3 head\necho 'Head node not found!'\nexit 1\n")
    said = refusal(BY_FILE)
    assert "ended; its output:" in said
    assert "Head node not found!" in said
    # Of an option that is given twice, ssh takes the first: it shares no connection that would outlive the tunnel.
    assert "ssh was given: -o ControlMaster=no -o ControlPath=none -o ControlMaster=auto -L 1:2:3 head" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(BY_FILE, port)
    assert f"port {port} of this machine" in said
    assert "another tunnel" in said


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_that_ray_would_look_up_for_minutes_is_probed_first(address: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        said = refusal(ClusterTarget(address.format(taken.getsockname()[1]), "RAY_ADDRESS", bootstrap=True))
    assert [words for words in ("RAY_ADDRESS", "refused", "dashboard") if words not in said] == []


def test_an_address_that_only_ray_can_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    target = ClusterTarget("auto", "RAY_ADDRESS", bootstrap=True)
    monkeypatch.setitem(sys.modules, "ray.dashboard.utils", None)
    assert "RAY_ADDRESS: only Ray can look up auto" in refusal(target)
    found: Any = SimpleNamespace(get_address_for_submission_client=lambda address: f"http://of-{address}:8265")
    monkeypatch.setitem(sys.modules, "ray.dashboard.utils", found)
    with connection.open_connection(target) as url:
        assert url == "http://of-auto:8265"

    def fail(address: str) -> str:
        raise ConnectionError("no head")

    found.get_address_for_submission_client = fail
    assert "Ray cannot look up auto (RAY_ADDRESS): no head" in refusal(target)


def test_without_the_ray_program_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.shutil, "which", lambda name, path=None: None)
    with pytest.raises(MissingExtra, match="uv pip install"), connection.open_connection(BY_FILE):
        pass
