"""The script that keeps a controller running on a host by ssh."""

import os
import signal
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from support.iris.host_cluster import until

pytestmark = pytest.mark.process

IRIS = "#!/bin/sh\necho 'a line of its log'\necho 'iris: another controller uses the remote state' >&2\nexit 3\n"


def test_a_controller_that_ends_is_started_again_and_its_last_words_are_told(tmp_path: Path) -> None:
    release = tmp_path / "releases" / "1"
    program = release / "venv" / "bin" / "iris"
    program.parent.mkdir(parents=True)
    program.write_text(IRIS)
    program.chmod(0o755)
    (release / "installed").touch()
    variables = {"top": str(tmp_path), "version": "1", "file": "c.yaml", "port": "7", "python": "3", "uv": "no"}
    with open(tmp_path / "log", "wb") as log:
        script = str(files("iris.lifecycle") / "host_boot.sh")
        process = subprocess.Popen(
            ["sh", script], env={**os.environ, **variables}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        told = "failed: it has ended (3): another controller uses the remote state; next start in 2 s\n"
        until(lambda: (tmp_path / "phase").exists() and (tmp_path / "phase").read_text() == told, "it fails twice")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
