"""Whose a process is stays known, whatever it does to its own environment later."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.worker.guardian.orphans import Marks, OrphanReaper
from rigging.testing import eventually

ALIVE, ENDED = "/ann/j/0:1", "/ann/j/0:2"


class OneChild(OrphanReaper):
    """Looks after one process only: the others are children of the tests, not of attempts."""

    def __init__(self, marks: Marks, pid: int) -> None:
        super().__init__(marks)
        self._pid = pid

    def _children(self) -> list[int]:
        return [self._pid]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the attempt ENDED that gives its environment up when it is told to."""
    program = ["/bin/sh", "-c", "read go; exec /usr/bin/env -i /bin/sleep 600"]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, env={"IRIS_ATTEMPT_ID": ENDED})
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_wiped_its_environment_ends_with_its_attempt(
    child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    reaper = OneChild(Marks(tmp_path), child.pid)
    assert reaper.sweep({ALIVE, ENDED}), "its attempt lives"
    assert child.stdin is not None
    child.stdin.write(b"go\n")
    child.stdin.flush()
    eventually(lambda: not Path(f"/proc/{child.pid}/environ").read_bytes(), "it has no environment any more")
    assert reaper.sweep({ALIVE, ENDED})
    assert child.poll() is None
    assert not reaper.sweep({ALIVE}), "it was killed, and may have left something"
    assert child.wait(20) == -9
    reaper.close()


def test_a_process_of_nobody_that_is_known_is_left_alone(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert child.stdin is not None
    child.stdin.write(b"go\n")
    child.stdin.flush()
    eventually(lambda: not Path(f"/proc/{child.pid}/environ").read_bytes(), "it has no environment any more")
    reaper = OneChild(Marks(tmp_path), child.pid)
    assert reaper.sweep(set())
    assert child.poll() is None
    reaper.close()
