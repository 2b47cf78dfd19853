"""What a guardian that was killed has left: processes that carry no sign of it, but are a uid of its tasks."""

import os
from pathlib import Path

import pytest

from iris.worker.strays.leftovers import end_leftovers

OURS, OTHERS = 1_900_000_301, 1_900_000_302


def sleeping_as(uid: int) -> int:
    pid = os.fork()
    if pid == 0:
        os.setresuid(uid, uid, uid)
        os.execve("/bin/sleep", ["sleep", "60"], {})
    while f"Uid:\t{uid}" not in Path(f"/proc/{pid}/status").read_text():
        pass
    return pid


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: processes of other users need root")
def test_processes_of_its_tasks_uids_are_ended_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "users" / str(OURS)).mkdir(parents=True)
    (tmp_path / "users" / "0").mkdir()
    ours, others = sleeping_as(OURS), sleeping_as(OTHERS)
    end_leftovers(tmp_path)
    assert os.waitstatus_to_exitcode(os.waitpid(ours, 0)[1]) == -9
    assert os.waitpid(others, os.WNOHANG) == (0, 0)
    os.kill(others, 9)
    os.waitpid(others, 0)
