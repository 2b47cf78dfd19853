"""Whose a process is stays known, whatever it does to its own environment later."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.worker.strays.orphans import Marks, OrphanReaper, environment_value, kill_leftovers

pytestmark = pytest.mark.process

ALIVE, ENDED = "/ann/j/0:1", "/ann/j/0:2"
NO_PID = 2**22 + 1

Child = subprocess.Popen[bytes]
Start = Callable[..., Child]


class OneChild(OrphanReaper):
    """Looks after one process only: the others are children of the tests, not of attempts."""

    def __init__(self, marks: Marks, pid: int, adopt_unmarked: bool = False) -> None:
        super().__init__(marks, adopt_unmarked)
        self.pid = pid

    def _children(self) -> list[int]:
        return [self.pid]


def is_killed(process: Child) -> bool:
    return process.wait(20) == -9


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes with an environment of their own, which give it up when they are told to, and ends them."""
    started: list[Child] = []

    def start(**env: str) -> Child:
        program = ["/bin/sh", "-c", "read go; exec /usr/bin/env -i /bin/sleep 600"]
        started.append(subprocess.Popen(program, stdin=subprocess.PIPE, env={**env, "STARTED": "1"}))
        pid = started[-1].pid
        eventually(lambda: environment_value(pid, "STARTED") == "1", "the kernel tells its environment")
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    found = Marks(tmp_path)
    if not found.usable:
        pytest.skip("this process may not raise its limit again")
    return found


def give_up_environment(child: Child) -> None:
    assert child.stdin is not None
    child.stdin.write(b"go\n")
    child.stdin.flush()
    proc = Path(f"/proc/{child.pid}")

    def has_none() -> bool:
        # While one program becomes another, the kernel tells of no environment, either.
        return (proc / "comm").read_text() == "sleep\n" and not (proc / "environ").read_bytes()

    eventually(has_none, "it has no environment any more")


def test_a_variable_of_a_process_is_read_whole_and_by_its_whole_name(start: Start) -> None:
    pid = start(A="1=2", AB="3", EMPTY="").pid
    assert [environment_value(pid, name) for name in ("A", "AB", "EMPTY", "B")] == ["1=2", "3", "", None]
    assert environment_value(NO_PID, "A") is None


class TestMarks:
    def test_what_is_started_while_it_is_on_carries_it(self, start: Start, marks: Marks) -> None:
        plain = start()
        marks.put_on(7)
        marked = start()
        marks.take_off()
        after = start()
        assert [marks.number_of(process.pid) for process in (plain, marked, after)] == [None, 7, None]
        marks.mark(plain.pid, 2**31)
        assert marks.number_of(plain.pid) == 2**31
        assert marks.number_of(NO_PID) is None

    def test_marks_of_another_work_directory_are_not_ours(self, start: Start, marks: Marks, tmp_path: Path) -> None:
        process = start()
        Marks(tmp_path / "b").mark(process.pid, 7)
        assert marks.number_of(process.pid) is None
        assert Marks(tmp_path / "b").number_of(process.pid) == 7

    def test_a_limit_that_may_not_be_raised_is_not_set(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hard limit of the host: a mark above it would be refused, and one below it would bind the tasks."""
        touched: list[Any] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
        for name in ("setrlimit", "prlimit"):
            monkeypatch.setattr(resource, name, lambda *what: touched.append(what))
        marks = Marks(tmp_path)
        marks.put_on(7)
        marks.take_off()
        marks.mark(1, 7)
        assert (marks.usable, touched) == (False, [])


class TestReaper:
    def test_a_process_that_wiped_its_environment_ends_with_its_attempt(self, start: Start, tmp_path: Path) -> None:
        process = start(IRIS_ATTEMPT_ID=ENDED)
        reaper = OneChild(Marks(tmp_path), process.pid)
        assert reaper.sweep({ALIVE, ENDED}), "its attempt lives"
        give_up_environment(process)
        assert reaper.sweep({ALIVE, ENDED})
        assert process.poll() is None
        assert not reaper.sweep({ALIVE}), "it was killed, and may have left something"
        assert is_killed(process)

    def test_numbers_are_new_each_time(self, tmp_path: Path) -> None:
        reaper = OrphanReaper(Marks(tmp_path))
        numbers = {reaper.expect(ALIVE) for _ in range(3)}
        assert len(numbers - {0}) == 3, "a process without a mark has the number 0"

    def test_a_marked_one_is_its_owners_whatever_its_environment_says(self, start: Start, marks: Marks) -> None:
        process = start(IRIS_ATTEMPT_ID=ALIVE)
        reaper = OneChild(marks, process.pid)
        reaper.mark(process.pid, reaper.expect(ENDED))
        assert reaper.owners({ALIVE, ENDED}) == {process.pid: ENDED}
        assert reaper.owners({ALIVE}) == {}
        assert reaper.sweep({ENDED})
        assert process.poll() is None
        assert not reaper.sweep({ALIVE})
        assert is_killed(process)

    def test_one_of_a_number_that_is_forgotten_is_of_an_ended_attempt(self, start: Start, marks: Marks) -> None:
        process = start(IRIS_ATTEMPT_ID=ALIVE)
        reaper = OneChild(marks, process.pid)
        number = reaper.expect(ALIVE)
        reaper.mark(process.pid, number)
        reaper.forget(number)
        assert not reaper.sweep({ALIVE})
        assert is_killed(process)

    def test_what_was_started_on_purpose_is_left_alone_until_it_is_reaped(self, start: Start, tmp_path: Path) -> None:
        process = start(IRIS_ATTEMPT_ID=ENDED)
        reaper = OneChild(Marks(tmp_path), process.pid)
        reaper.add_own(process.pid)
        assert reaper.sweep(set())
        assert reaper.owners({ENDED}) == {}
        assert process.poll() is None
        reaper.remove_own(process.pid)
        assert not reaper.sweep(set())
        assert is_killed(process)

    def test_one_that_nothing_attributes_is_killed_only_where_it_may_be(self, start: Start, tmp_path: Path) -> None:
        process = start()
        give_up_environment(process)
        marks = Marks(tmp_path)
        assert OneChild(marks, process.pid, adopt_unmarked=True).sweep({ALIVE}), "it may be of any that lives"
        assert OneChild(marks, process.pid).sweep(set())
        assert process.poll() is None
        assert not OneChild(marks, process.pid, adopt_unmarked=True).sweep(set())
        assert is_killed(process)

    def test_a_number_that_the_system_gives_again_is_looked_at_anew(self, start: Start, marks: Marks) -> None:
        process = start(IRIS_ATTEMPT_ID=ENDED)
        reaper = OneChild(marks, process.pid)
        assert reaper.sweep({ENDED})
        reaper.pid = os.getpid()  # for which waitpid says that it is no child
        assert reaper.sweep({ENDED})
        reaper.pid = process.pid
        reaper.mark(process.pid, reaper.expect(ALIVE))
        assert reaper.sweep({ALIVE})
        assert process.poll() is None

    def test_a_dead_one_is_reaped(self, start: Start, tmp_path: Path) -> None:
        process = start(IRIS_ATTEMPT_ID=ENDED)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert OneChild(Marks(tmp_path), process.pid).sweep(set()), "it can leave nothing behind any more"
        with pytest.raises(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)

    @pytest.mark.parametrize("kernel_tells", [True, False])
    def test_its_children_are_found_with_and_without_the_kernels_list(
        self, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_tells: bool
    ) -> None:
        process = start(IRIS_ATTEMPT_ID=ALIVE)
        open_ = os.open

        def opening(path: str, *rest: int) -> int:
            if str(path).endswith("/children") and not kernel_tells:
                raise FileNotFoundError(path)
            return open_(path, *rest)

        monkeypatch.setattr(os, "open", opening)
        reaper = OrphanReaper(Marks(tmp_path))
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(2):  # it opens the list again
            assert process.pid in reaper._children()
            assert not {os.getpid(), os.getppid()} & {*reaper._children()}
            reaper.close()
            reaper.close()
            assert set(os.listdir("/proc/self/fd")) <= before


LEFT = """
import subprocess, sys
none = subprocess.DEVNULL
env = {"IRIS_WORK_DIR": sys.argv[1]}
child = subprocess.Popen(["/bin/sleep", "600"], env=env, stdout=none, stderr=none, start_new_session=True)
print(child.pid, flush=True)
"""


def test_what_a_former_guardian_left_is_killed_and_nothing_else(start: Start, marks: Marks, tmp_path: Path) -> None:
    other, marked = start(IRIS_WORK_DIR=str(tmp_path / "other")), start()
    marks.mark(marked.pid, 3)
    done = subprocess.run([sys.executable, "-c", LEFT, str(tmp_path)], capture_output=True, check=True, timeout=60)
    assert kill_leftovers(tmp_path) == sorted([int(done.stdout), marked.pid])
    assert other.poll() is None
    assert kill_leftovers(tmp_path) == []


HARMLESS = """
import os, sys
from pathlib import Path
from iris.worker.strays.orphans import kill_leftovers
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
