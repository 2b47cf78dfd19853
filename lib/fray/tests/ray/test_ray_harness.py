"""What a cluster for tests leaves behind: nothing, even when the tests are killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from fray.testing import LONG
from fray.testing.ray_harness import NAMESPACED, need_namespaces

pytestmark = [pytest.mark.ray, pytest.mark.e2e]


def test_the_processes_and_files_of_a_cluster_go_when_nobody_commands_it_any_more(tmp_path: Path) -> None:
    need_namespaces()
    directory = tmp_path / "cluster"
    directory.mkdir()
    # A process beside it in the namespace, which writes as Ray's do.
    script = """
import subprocess, sys
writer = 'while :; do echo x > "$1/$(date +%N)"; done'
subprocess.Popen(["sh", "-c", writer, "sh", sys.argv[1]], start_new_session=True)
sys.argv[0] = "ray_harness"
import runpy
runpy.run_module("fray.testing.ray_harness", run_name="__main__")
"""
    command = [*NAMESPACED, sys.executable, "-c", script, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LONG) == 0
    assert not directory.exists()
