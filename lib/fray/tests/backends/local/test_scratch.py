import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fray.backends.local import LocalClient
from fray.backends.local.scratch import PREFIX, ScratchFolder, remove_abandoned
from fray.testing import LONG, Flag
from fray.types import Entrypoint, JobRequest, JobStatus

SCRIPT = """
import os, sys, threading
from fray import Entrypoint, JobRequest, LocalClient
from fray.testing import Flag

def hold(flag):
    flag.set()
    threading.Event().wait()

runs, forked, end = [Flag(path) for path in sys.argv[1:]]
client = LocalClient(processes=True)
job = client.submit(JobRequest("holds", Entrypoint.from_callable(hold, [runs])))
if os.fork() == 0:
    forked.set()
    end.wait()
    os._exit(0)
threading.Event().wait()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, of this process and those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def folders(temporary: Path) -> set[str]:
    return {path.name for path in temporary.iterdir() if path.name.startswith(PREFIX)}


@contextmanager
def killed_client(directory: Path) -> Iterator[None]:
    """A client in another process that was killed while its job ran; a fork of that process lives in the block."""
    runs, forked, end = (Flag(str(directory / name)) for name in ("runs", "forked", "end"))
    command = [sys.executable, "-c", SCRIPT, runs.path, forked.path, end.path]
    try:
        # The fork has the writing end, so it is gone when reading comes to its end.
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            runs.wait()
            forked.wait()
            process.kill()
            process.wait()
            yield
            end.set()
            assert process.communicate(timeout=LONG) == (b"", None)
    finally:
        end.set()


@pytest.mark.process
def test_what_a_killed_client_left_is_removed_by_the_next(temporary: Path, tmp_path: Path) -> None:
    with killed_client(tmp_path):
        # A fork of the killed process may have use for it.
        left = folders(temporary)
        assert len(left) == 1
        remove_abandoned(str(temporary))
        assert folders(temporary) == left
    with LocalClient(processes=True) as client:
        own = JobRequest("own", Entrypoint.from_callable(os.getpid))
        assert client.submit(own).wait(LONG) is JobStatus.SUCCEEDED
        assert len(folders(temporary)) == 1
        assert not folders(temporary) & left
    assert folders(temporary) == set()


def test_folders_in_use_and_those_of_others_stay(temporary: Path, tmp_path: Path) -> None:
    scratch = ScratchFolder()
    used = scratch.new_path("call")
    used.touch()
    other, elsewhere = temporary / "fray-ray-1", tmp_path / "elsewhere"
    for folder in (other, elsewhere):
        folder.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    (temporary / f"{PREFIX}file").touch()
    before = set(temporary.iterdir())
    remove_abandoned(str(temporary))
    assert set(temporary.iterdir()) == before
    assert used.exists()
    assert elsewhere.exists()
    scratch.remove()
    assert not used.parent.exists()


def test_a_new_folder_is_not_taken_for_an_abandoned_one(temporary: Path) -> None:
    """Between its making and its locking another process may look: then its maker has to take a new one."""
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            remove_abandoned(str(temporary))

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for _ in range(60):
            scratch = ScratchFolder()
            path = scratch.new_path("call")
            path.touch()
            assert path.exists()
            scratch.remove()
    finally:
        done.set()
        sweeper.join()
    assert folders(temporary) == set()
