"""Jobs of a real cluster whose head is killed and started anew with what it kept on the disk, and without."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fray.testing.ray_harness import need_namespaces

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.e2e, pytest.mark.timeout(900)]

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


class ReplacedHead:
    """A cluster whose head can be lost."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.address = self._read()

    def replace(self) -> None:
        """Kill it, as its machine's failure would, and start another at its place."""
        assert self._process.stdin is not None
        self._process.stdin.write("replace\n")
        self._process.stdin.flush()
        assert self._read() == self.address

    def _read(self) -> str:
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        assert url.startswith("http://"), "the cluster did not start"
        return url


@contextlib.contextmanager
def serving(storage: str) -> Iterator[ReplacedHead]:
    need_namespaces()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVE, storage], **pipes) as process:
        assert process.stdin is not None
        try:
            yield ReplacedHead(process)
        finally:
            process.stdin.close()


def environment(address: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "RAY_"))}
    return {**kept, "PATH": path, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"}


def run(address: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env=environment(address), capture_output=True, text=True, timeout=300, check=False
    )


def ray_run(*words: str) -> Sequence[str]:
    return [sys.executable, "-m", "marin.run.ray_run", *words]


@contextlib.contextmanager
def followed(address: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A long job that is followed, and has begun."""
    words = ray_run("--submission-id", "long", "--", "bash", "-c", "echo began; sleep 600")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=folder, env=environment(address), **pipes) as process:
        assert process.stdout is not None
        try:
            assert any(line == "began\n" for line in process.stdout)
            yield process
        finally:
            process.kill()


def test_a_head_that_kept_its_history_still_knows_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    work = tmp_path / "work"
    with serving(str(tmp_path / "gcs")) as head:
        first = run(head.address, work, *ray_run("--submission-id", "first", "--", "echo", "done before"))
        assert first.returncode == 0, first.stderr
        with followed(head.address, work) as following:
            head.replace()
            _, told = following.communicate(timeout=300)
        assert following.returncode == 1
        assert told.count("connecting again") <= 2
        assert "job long failed: it was lost with its node or with the cluster's head" in told.splitlines()[-1]

        listed = run(head.address, work, sys.executable, "-m", "marin.run.cluster", "jobs", "--all")
        assert listed.returncode == 0, listed.stderr
        assert "SUCCEEDED  first  echo 'done before'\n" in listed.stdout
        assert "FAILED     long  bash -c" in listed.stdout
        by_ray = run(head.address, work, "ray", "job", "list")
        assert "submission_id='first'" in by_ray.stdout, by_ray.stderr
        assert "submission_id='long'" in by_ray.stdout
        logs = run(head.address, work, "ray", "job", "logs", "first")
        assert "\ndone before\n" in logs.stdout, logs.stderr
        after = run(head.address, work, *ray_run("--", "echo", "done after"))
        assert (after.returncode, "done after" in after.stdout) == (0, True), after.stderr


def test_a_head_that_kept_nothing_knows_its_jobs_no_more_and_that_is_told(tmp_path: Path) -> None:
    with serving("") as head, followed(head.address, tmp_path) as following:
        head.replace()
        _, told = following.communicate(timeout=300)
    assert following.returncode == 6
    assert "the cluster does not know job long any more: was its head started anew?" in told
