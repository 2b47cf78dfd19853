"""The operations with the real `ray` program and its `local` provider; ssh goes to another home on this machine."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from marin.run.cluster import ray_commands
from support.marin.ssh import SshMachine

pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.timeout(400)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SshMachine]:
    found = SshMachine(tmp_path)
    yield found
    found.forget()


def test_up_commands_on_the_head_and_down(machine: SshMachine) -> None:
    up = machine.run("up", "--yes")
    assert up.returncode == 0, up.stdout + up.stderr
    assert (machine.head / "starts").read_text() == "started\n"

    for command, code, printed in (("echo out; exit 42", 42, "out\n"), ("printf 'a\\nb'", 0, "a\nb")):
        done = machine.run("ssh", "--", command)
        assert (done.returncode, done.stdout) == (code, printed), done.stdout + done.stderr

    update = machine.run("update")
    assert update.returncode == 0, update.stdout + update.stderr
    assert (machine.head / "starts").read_text() == "started\n", "jobs would have ended"

    unpacked = machine.head / "tmp/ray/session_latest/runtime_resources/working_dir_files/_ray_pkg_1"
    unpacked.mkdir(parents=True)
    (unpacked / "a.py").write_text("print(1)")
    fetch = ray_commands.fetch_unpacked(str(machine.file), "_ray_pkg_1.zip", f"{machine.home}/package/")
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
    assert "did not finish; Ray's output:" in gone.stderr
