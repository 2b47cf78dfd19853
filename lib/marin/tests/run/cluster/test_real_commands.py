"""The operations with the real `ray` program and its `local` provider; ssh goes to another home on this machine."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from marin.run.cluster import commands

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(400)]

SSH = """#!/bin/bash
# What follows the host is for the shell there.
while [[ $1 != *@* ]]; do shift; done
shift
export HOME={head}
cd "$HOME"
exec bash -c "$*"
"""
RSYNC = """#!/bin/bash
there() {{ case $1 in *@*:*) echo "{head}/$(echo "${{1#*:}}" | sed 's|^~/||')" ;; *) echo "$1" ;; esac; }}
exec cp -rT "$(there "${{@: -2:1}}")" "$(there "${{@: -1}}")"
"""


class Machine:
    """A user's machine with a cluster file, and the home of a head."""

    def __init__(self, folder: Path) -> None:
        self.head, self.home, programs = folder / "head", folder / "home", folder / "bin"
        for each in (self.head, self.home, programs):
            each.mkdir()
        for name, text in (("ssh", SSH), ("rsync", RSYNC)):
            (programs / name).write_text(text.format(head=self.head))
            (programs / name).chmod(0o755)
        (self.head / ".bashrc").write_text("")
        (folder / "key").write_text("")
        self.file = folder / "cluster.yaml"
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        self.write(cluster_name=self.name)
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), "/usr/bin", "/bin"])
        self.environment = {
            "PATH": path,
            "HOME": str(self.home),
            "RAY_USAGE_STATS_ENABLED": "0",
            "TMPDIR": str(folder),
        }

    def write(self, **changed: object) -> None:
        config = {
            "provider": {"type": "local", "head_ip": "127.0.0.1", "worker_ips": []},
            "auth": {"ssh_user": "me", "ssh_private_key": str(self.file.parent / "key")},
            "head_start_ray_commands": ["echo started >> ~/starts; : ulimit -n ray start --autoscaling-config"],
            "worker_start_ray_commands": [],
        }
        self.file.write_text(yaml.safe_dump({**config, **changed}))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "marin.run.cluster", words[0], "--cluster", str(self.file), *words[1:]]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, cwd=self.home)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    for left in Path("/tmp/ray").glob(f"cluster-{found.name}*"):
        left.unlink()


def test_up_commands_on_the_head_and_down(machine: Machine) -> None:
    up = machine.run("up", "--yes")
    assert up.returncode == 0, up.stdout + up.stderr
    assert (machine.head / "starts").read_text() == "started\n"

    for command, code, printed in (
        ("echo out; exit 42", 42, "out\n"),
        ("printf 'a\\nb'", 0, "a\nb"),
        ("cat ~/starts", 0, "started\n"),
    ):
        done = machine.run("ssh", "--", command)
        assert (done.returncode, done.stdout) == (code, printed), done.stdout + done.stderr

    update = machine.run("update")
    assert update.returncode == 0, update.stdout + update.stderr
    assert (machine.head / "starts").read_text() == "started\n", "jobs would have ended"

    unpacked = machine.head / "tmp/ray/session_latest/runtime_resources/working_dir_files/_ray_pkg_1"
    unpacked.mkdir(parents=True)
    (unpacked / "a.py").write_text("print(1)")
    fetch = commands.fetch_unpacked(str(machine.file), "_ray_pkg_1.zip", f"{machine.home}/package/")
    (machine.home / "package").mkdir()
    subprocess.run(
        [str(Path(sys.executable).parent / "ray"), *fetch.words],
        env=machine.environment,
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert [path.name for path in (machine.home / "package").iterdir()] == ["a.py"]

    # Of others' clusters only the head knows the names.
    for note in machine.home.rglob("launched/*"):
        note.unlink()
    running = yaml.safe_load((machine.head / "ray_bootstrap_config.yaml").read_text())
    (machine.head / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump({**running, "cluster_name": "other"}))
    refused = machine.run("up", "--yes")
    assert refused.returncode == 3
    assert f"cluster_name 'other' became {machine.name!r}" in refused.stderr

    (machine.head / "ray_bootstrap_config.yaml").unlink()
    down = machine.run("down", "--yes")
    assert down.returncode == 0, down.stdout + down.stderr
    gone = machine.run("ssh", "--", "true")
    assert gone.returncode == 5
    assert "did not come to its end; Ray said:" in gone.stderr
