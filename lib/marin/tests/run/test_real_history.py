"""Jobs of a real cluster whose head is killed and started anew with what it kept on the disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fray.testing.ray_harness import need_namespaces

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.ray, pytest.mark.timeout(900)]

# In a process of its own: what Ray is told of the storage holds for the whole process. A line has the head replaced.
SERVE = """
import sys
from fray.testing.ray_jobs import jobs_cluster
with jobs_cluster(cpus=2, storage=sys.argv[1]) as cluster:
    print(cluster.jobs_address, flush=True)
    for line in sys.stdin:
        cluster.replace_head()
        print(cluster.jobs_address, flush=True)
"""
RAY_RUN = (sys.executable, "-m", "marin.run.ray_run")


def environment(address: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "RAY_"))}
    return {**kept, "PATH": path, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"}


def lose_head_while_a_job_is_followed(head: "subprocess.Popen[str]", address: str, folder: Path) -> str:
    """Kill the head, as its machine's failure would, and start another at its place; returns what the follower said."""
    words = [*RAY_RUN, "--submission-id", "long", "--", "bash", "-c", "echo began; sleep 600"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(address), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        try:
            assert any(line == "began\n" for line in following.stdout)
            head.stdin.write("replace\n")
            head.stdin.flush()
            assert head.stdout.readline().strip() == address
            _, told = following.communicate(timeout=300)
        finally:
            following.kill()
    assert following.returncode == 1
    return told


def test_a_head_that_kept_its_history_still_knows_its_jobs(tmp_path: Path) -> None:
    need_namespaces()
    work = tmp_path / "work"
    work.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVE, str(tmp_path / "gcs")], **pipes) as head:
        address = head.stdout.readline().strip()

        def run(*words: str) -> str:
            done = subprocess.run(
                words, cwd=work, env=environment(address), capture_output=True, text=True, timeout=200
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        run(*RAY_RUN, "--submission-id", "first", "--", "echo", "done before")
        told = lose_head_while_a_job_is_followed(head, address, work)
        assert told.count("connecting again") <= 2
        assert "job long failed: it was lost with its node or with the cluster's head" in told.splitlines()[-1]

        listed = run(sys.executable, "-m", "marin.run.cluster", "jobs", "--all")
        assert "SUCCEEDED  first  echo 'done before'\n" in listed
        assert "FAILED     long  bash -c" in listed
        by_ray = run("ray", "job", "list")
        assert "submission_id='first'" in by_ray
        assert "submission_id='long'" in by_ray
        assert "\ndone before\n" in run("ray", "job", "logs", "first")
        assert "done after" in run(*RAY_RUN, "--", "echo", "done after")
        head.stdin.close()
