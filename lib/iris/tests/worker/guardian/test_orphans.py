"""Whose a process is stays known, whatever it does to its own environment later."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.worker.guardian.orphans import Marks, OrphanReaper, environment_value, kill_leftovers
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


def give_up_environment(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.write(b"go\n")
    child.stdin.flush()
    proc = Path(f"/proc/{child.pid}")

    def has_none() -> bool:
        # While one program becomes another, the kernel tells of no environment, either.
        return (proc / "comm").read_text() == "sleep\n" and not (proc / "environ").read_bytes()

    eventually(has_none, "it has no environment any more")


def test_a_process_that_wiped_its_environment_ends_with_its_attempt(
    child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    reaper = OneChild(Marks(tmp_path), child.pid)
    assert reaper.sweep({ALIVE, ENDED}), "its attempt lives"
    give_up_environment(child)
    assert reaper.sweep({ALIVE, ENDED})
    assert child.poll() is None
    assert not reaper.sweep({ALIVE}), "it was killed, and may have left something"
    assert child.wait(20) == -9
    reaper.close()


def test_a_process_of_nobody_that_is_known_is_left_alone(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    give_up_environment(child)
    reaper = OneChild(Marks(tmp_path), child.pid)
    assert reaper.sweep(set())
    assert child.poll() is None
    reaper.close()


NOTHING = "read go"


@pytest.fixture
def start() -> Iterator[type]:
    """Starts processes that wait, with an environment of their own, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    class Start:
        @staticmethod
        def one(**env: str) -> subprocess.Popen[bytes]:
            known = {**env, "STARTED": "1"}
            started.append(subprocess.Popen(["/bin/sh", "-c", NOTHING], stdin=subprocess.PIPE, env=known))
            pid = started[-1].pid
            eventually(lambda: environment_value(pid, "STARTED") == "1", "the kernel tells its environment")
            return started[-1]

    yield Start
    for process in started:
        process.kill()
        process.communicate()


def test_a_variable_of_a_process_is_read_whole_and_by_its_whole_name(start) -> None:
    process = start.one(A="1=2", AB="3", EMPTY="")
    assert environment_value(process.pid, "A") == "1=2"
    assert environment_value(process.pid, "AB") == "3"
    assert environment_value(process.pid, "EMPTY") == ""
    assert environment_value(process.pid, "B") is None
    assert environment_value(2**22 + 1, "A") is None, "there is no such process"


class TestMarks:
    def test_what_is_started_while_it_is_on_carries_it(self, start, tmp_path: Path) -> None:
        marks = Marks(tmp_path)
        if not marks.usable:
            pytest.skip("this process may not raise its limit again")
        plain = start.one()
        marks.put_on(7)
        marked = start.one()
        marks.take_off()
        after = start.one()
        assert [marks.number_of(process.pid) for process in (plain, marked, after)] == [None, 7, None]
        marks.mark(plain.pid, 2**31)
        assert marks.number_of(plain.pid) == 2**31
        assert marks.number_of(2**22 + 1) is None

    def test_marks_of_another_work_directory_are_not_ours(self, start, tmp_path: Path) -> None:
        ours, theirs = Marks(tmp_path / "a"), Marks(tmp_path / "b")
        if not ours.usable:
            pytest.skip("this process may not raise its limit again")
        process = start.one()
        theirs.mark(process.pid, 7)
        assert ours.number_of(process.pid) is None
        assert Marks(tmp_path / "b").number_of(process.pid) == 7

    def test_where_the_limit_may_not_be_raised_again_none_is_set(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A hard limit of the host: a mark above it would be refused, and one below it would bind the tasks."""
        touched: list[Any] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
        monkeypatch.setattr(resource, "setrlimit", lambda *what: touched.append(what))
        monkeypatch.setattr(resource, "prlimit", lambda *what: touched.append(what))
        marks = Marks(tmp_path)
        marks.put_on(7)
        marks.take_off()
        marks.mark(1, 7)
        assert not marks.usable
        assert touched == []


class TestReaper:
    def test_a_mark_is_taken_off_once_after_it_was_put_on(self, tmp_path: Path) -> None:
        """Else this process's own tools would be taken for an attempt's."""

        class Noting(Marks):
            def put_on(self, number: int) -> None:
                done.append(f"on {number}")

            def take_off(self) -> None:
                done.append("off")

        done: list[str] = []
        reaper = OrphanReaper(Noting(tmp_path))
        reaper.take_mark_off()
        reaper.put_mark_on(7)
        reaper.take_mark_off()
        reaper.take_mark_off()
        assert done == ["on 7", "off"]

    def test_numbers_are_new_each_time(self, tmp_path: Path) -> None:
        reaper = OrphanReaper(Marks(tmp_path))
        numbers = [reaper.expect(ALIVE) for _ in range(3)]
        assert len(set(numbers)) == 3
        assert 0 not in numbers, "a process without a mark has the number 0"

    def test_a_marked_one_is_its_owners_whatever_its_environment_says(self, start, tmp_path: Path) -> None:
        marks = Marks(tmp_path)
        if not marks.usable:
            pytest.skip("this process may not raise its limit again")
        process = start.one(IRIS_ATTEMPT_ID=ALIVE)
        reaper = OneChild(marks, process.pid)
        reaper.mark(process.pid, reaper.expect(ENDED))
        assert reaper.sweep({ENDED})
        assert process.poll() is None
        assert not reaper.sweep({ALIVE})
        assert process.wait(20) == -9

    def test_one_of_a_number_that_is_forgotten_is_of_an_ended_attempt(self, start, tmp_path: Path) -> None:
        marks = Marks(tmp_path)
        if not marks.usable:
            pytest.skip("this process may not raise its limit again")
        process = start.one(IRIS_ATTEMPT_ID=ALIVE)
        reaper = OneChild(marks, process.pid)
        number = reaper.expect(ALIVE)
        reaper.mark(process.pid, number)
        reaper.forget(number)
        assert not reaper.sweep({ALIVE})
        assert process.wait(20) == -9

    def test_what_was_started_on_purpose_is_left_alone_until_it_is_reaped(self, start, tmp_path: Path) -> None:
        process = start.one(IRIS_ATTEMPT_ID=ENDED)
        reaper = OneChild(Marks(tmp_path), process.pid)
        reaper.add_own(process.pid)
        assert reaper.sweep(set())
        assert process.poll() is None
        reaper.remove_own(process.pid)
        assert not reaper.sweep(set())
        assert process.wait(20) == -9

    def test_one_that_nothing_attributes_is_killed_only_where_it_may_be(self, start, tmp_path: Path) -> None:
        class Adopting(OneChild):
            def __init__(self, marks: Marks, pid: int) -> None:
                super().__init__(marks, pid)
                self._adopt_unmarked = True

        process = start.one()
        assert Adopting(Marks(tmp_path), process.pid).sweep({ALIVE}), "it may be of any that lives"
        assert OneChild(Marks(tmp_path), process.pid).sweep(set())
        assert process.poll() is None
        assert not Adopting(Marks(tmp_path), process.pid).sweep(set())
        assert process.wait(20) == -9

    def test_a_number_that_the_system_gives_again_is_looked_at_anew(self, start, tmp_path: Path) -> None:
        marks = Marks(tmp_path)
        if not marks.usable:
            pytest.skip("this process may not raise its limit again")
        process = start.one(IRIS_ATTEMPT_ID=ENDED)
        reaper = OneChild(marks, process.pid)
        assert reaper.sweep({ENDED})
        reaper._pid = os.getpid()  # for which waitpid says that it is no child
        assert reaper.sweep({ENDED})
        reaper._pid = process.pid
        reaper.mark(process.pid, reaper.expect(ALIVE))
        assert reaper.sweep({ALIVE})
        assert process.poll() is None

    def test_a_dead_one_is_reaped(self, start, tmp_path: Path) -> None:
        process = start.one(IRIS_ATTEMPT_ID=ENDED)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert OneChild(Marks(tmp_path), process.pid).sweep(set()), "it can leave nothing behind any more"
        with pytest.raises(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)

    @pytest.mark.parametrize("kernel_tells", [True, False])
    def test_its_children_are_found_with_and_without_the_kernels_list(
        self, start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_tells: bool
    ) -> None:
        process = start.one(IRIS_ATTEMPT_ID=ALIVE)
        open_ = os.open

        def opening(path: str, *rest: int) -> int:
            if str(path).endswith("/children") and not kernel_tells:
                raise FileNotFoundError(path)
            return open_(path, *rest)

        monkeypatch.setattr(os, "open", opening)
        reaper = OrphanReaper(Marks(tmp_path))
        before = set(os.listdir("/proc/self/fd"))
        assert process.pid in reaper._children()
        assert os.getpid() not in reaper._children()
        assert os.getppid() not in reaper._children()
        reaper.close()
        reaper.close()
        assert set(os.listdir("/proc/self/fd")) <= before
        assert process.pid in reaper._children(), "it opens the list again"
        reaper.close()


LEFT = """
import subprocess, sys
none = subprocess.DEVNULL
env = {"IRIS_WORK_DIR": sys.argv[1]}
child = subprocess.Popen(["/bin/sleep", "600"], env=env, stdout=none, stderr=none, start_new_session=True)
print(child.pid, flush=True)
"""


def test_what_a_former_guardian_left_is_killed_and_nothing_else(start, tmp_path: Path) -> None:
    other = start.one(IRIS_WORK_DIR=str(tmp_path / "other"))
    marked = start.one()
    marks = Marks(tmp_path / "work")
    if marks.usable:
        marks.mark(marked.pid, 3)
    done = subprocess.run(
        [sys.executable, "-c", LEFT, str(tmp_path / "work")], capture_output=True, text=True, check=True, timeout=60
    )
    left = int(done.stdout)
    assert kill_leftovers(tmp_path / "work") == sorted([left, *([marked.pid] if marks.usable else [])])
    assert other.poll() is None
    assert kill_leftovers(tmp_path / "work") == []


HARMLESS = """
import os, sys
from pathlib import Path
from iris.worker.guardian.orphans import kill_leftovers
print(kill_leftovers(Path(sys.argv[1])) == [int(sys.argv[2])])
"""


def test_whoever_looks_for_leftovers_spares_itself_and_those_above_it(tmp_path: Path) -> None:
    """As a guardian that a task of its own directory has started, which has that task's variables."""
    script = 'sleep 1000 & "$0" -c "$1" "$2" $!; echo above'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, HARMLESS, str(tmp_path)],
        env={**os.environ, "IRIS_WORK_DIR": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout == "True\nabove\n", done.stderr
