"""Fixtures for the operation of clusters: a `ray` program that notes how it is called and does little else."""

import json
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.run import connection
from marin.run.cluster import context
from marin.run.cluster.google_nodes import GoogleNodes
from marin.run.cluster.unpacking import JOB_PREFIX
from marin.testing.google_cloud import GcpServer
from marin.testing.jobs_server import Job, JobsServer

INFRA = Path(__file__).parents[5] / "infra"

# Ray's own words come before what a command prints, and a command that fails is always 1, as with the real one.
FAKE_RAY = """#!{python}
import os, json, shutil, socket, subprocess, sys, threading
home, words = {home!r}, sys.argv[1:]
with open(home + "/calls", "a") as calls:
    calls.write(json.dumps([words, os.environ.get("RAY_UP_enable_autoscaler_v2")]) + "\\n")
state = json.load(open(home + "/state.json"))
if words[0] == "exec":
    print("Fetched IP: 10.0.0.1", flush=True)
    if not state["running"]:
        sys.exit("Error: Head node of cluster not found!")
    done = subprocess.run(["bash", "-c", words[2]], env={{**os.environ, "HOME": home + "/head"}}).returncode
    sys.stdout.write("Shared connection to 10.0.0.1 closed.\\n")
    sys.exit(1 if done else 0)
if words[0] == "dashboard":
    server = socket.create_server(("127.0.0.1", int(words[words.index("--port") + 1])))
    with open(home + "/tunnels", "a") as tunnels:
        tunnels.write(str(os.getpid()) + "\\n")
    def pump(a, b):
        while data := a.recv(65536):
            b.sendall(data)
        b.close()
    while True:
        near, _ = server.accept()
        far = socket.create_connection(("127.0.0.1", state["jobs_port"]))
        for pair in ((near, far), (far, near)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
if words[0] == "rsync-down":
    shutil.copytree(home + "/head" + words[2], words[3], dirs_exist_ok=True)
if words[0] in ("up", "down"):
    state["running"] = words[0] == "up"
    json.dump(state, open(home + "/state.json", "w"))
sys.exit(state["codes"].get(words[0], 0))
"""


@dataclass
class FakeRay:
    """The `ray` program, and the cluster that it seems to operate."""

    home: Path

    @property
    def head(self) -> Path:
        return self.home / "head"

    def calls(self) -> list[list[str]]:
        """How it was called, but for tunnels' ports."""
        return [words for words, _ in self._notes()]

    def v2(self) -> list[str | None]:
        """What it was told of autoscaler v2, each time."""
        return [flag for _, flag in self._notes()]

    def set(self, **values: object) -> None:
        file = self.home / "state.json"
        state = json.loads(file.read_text()) if file.exists() else {"running": True, "codes": {}, "jobs_port": 0}
        file.write_text(json.dumps({**state, **values}))

    def tunnels(self) -> list[int]:
        """Processes of the tunnels that were opened."""
        notes = self.home / "tunnels"
        return [int(line) for line in notes.read_text().split()] if notes.exists() else []

    def _notes(self) -> list[tuple[list[str], str | None]]:
        notes = self.home / "calls"
        return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


@pytest.fixture
def gcp(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpServer]:
    """Google's APIs as the operations see them."""
    with GcpServer() as server:

        def nodes(provider: Mapping[str, Any]) -> GoogleNodes:
            token = {"type": "credentials_token", "credentials": "t"}
            return GoogleNodes({**provider, "gcp_credentials": token}, endpoint=server.address)

        monkeypatch.setattr(context, "GoogleNodes", nodes)
        yield server


@pytest.fixture
def ray(tmp_path: Path, project: Path, server: JobsServer, gcp: GcpServer, monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """A project with the files of infra/, whose cluster runs; `ray` is the program above."""
    home = tmp_path / "ray"
    (home / "head" / ".ray").mkdir(parents=True)
    (home / "head" / ".ray" / "auth_token").write_text("secret-of-the-head\n")
    program = home / "ray"
    program.write_text(FAKE_RAY.format(python=sys.executable, home=str(home)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    which = shutil.which

    def find(name: str, path: str | None = None) -> str | None:
        return str(program) if name == "ray" else which(name, path=path)

    monkeypatch.setattr(connection.shutil, "which", find)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    shutil.copytree(INFRA, project / "infra")
    fake = FakeRay(home)
    server.on_submit = _end_unpacking
    fake.set(jobs_port=int(server.address.rpartition(":")[2]))
    return fake


def _end_unpacking(job: Job) -> None:
    if job.body["submission_id"].startswith(JOB_PREFIX):
        job.end("SUCCEEDED", 0)
