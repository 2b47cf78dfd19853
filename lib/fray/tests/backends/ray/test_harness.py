"""A cluster for tests leaves nothing behind, even when the tests are killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fray.testing import LONG
from fray.testing.ray_harness import LOGS_VARIABLE, NAMESPACED, RayCluster, need_namespaces

pytestmark = [pytest.mark.ray, pytest.mark.process]


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


@pytest.mark.parametrize(("last_words", "kept"), [("{}\n", False), ("", True)])
def test_logs_are_kept_when_the_process_that_commands_it_has_died(tmp_path: Path, last_words: str, kept: bool) -> None:
    need_namespaces()
    logs = tmp_path / "cluster/ray/session_1_2/logs"
    logs.mkdir(parents=True)
    (logs / "gcs_server.out").write_text("why")
    subprocess.run(
        [*NAMESPACED, sys.executable, "-m", "fray.testing.ray_harness", str(tmp_path / "cluster")],
        input=last_words,
        text=True,
        check=True,
        timeout=LONG,
        env={**os.environ, LOGS_VARIABLE: str(tmp_path / "kept")},
    )
    assert not (tmp_path / "cluster").exists()
    found = tmp_path / "kept/cluster/gcs_server.out"
    assert found.exists() is kept
    assert not kept or found.read_text() == "why"


def test_a_cluster_starts_where_no_ray_was_and_writes_its_address_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ray's sockets have no room for pytest's long path.
    with tempfile.TemporaryDirectory(prefix="r") as short:
        monkeypatch.setenv("TMPDIR", short)
        monkeypatch.setattr(tempfile, "tempdir", None)
        with RayCluster(cpus=1).running():
            assert not Path(short, "ray").exists()
        assert list(Path(short).iterdir()) == []
