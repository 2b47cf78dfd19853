"""The guardian's process: what it takes hold of when it begins, how long it stays, and what a defect costs."""

import fcntl
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.worker.guardian.__main__ import enough_descriptors, finish_on_sigterm, guard, spare_collector
from iris.worker.guardian.launch import GuardianPaths, launch
from iris.worker.guardian.protocol import NEWEST_VERSION, OLDEST_VERSION, JsonFrameReader, encode
from iris.worker.isolation.plan import IsolationMode
from rigging.testing import eventually

NO_LIMIT = -1


@pytest.mark.parametrize(
    ("soft", "hard", "limit"),
    [
        (1024, NO_LIMIT, 4096),
        (1024, 2**20, 4096),
        (256, 1000, 1000),
        (5000, 2**20, 5000),
        (5000, NO_LIMIT, 5000),
        (4096, 4096, 4096),
        (NO_LIMIT, NO_LIMIT, 4096),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_is_useful_and_never_lowered(
    soft: int, hard: int, limit: int
) -> None:
    assert enough_descriptors(soft, hard) == limit


class Played:
    """All that `guard` works with; its clock goes on by what the reactor waits."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.now = 100.0
        self.finishing = False
        self.live_count = 0
        self.has_queue = False
        self.has_worker = False
        self.due: float | None = None
        self.turns: Iterator[Callable[[], object]] = iter(())

    def wait_s(self) -> float | None:
        return self.due

    def turn(self, longest_s: float | None) -> None:
        self.calls.append(longest_s)
        self.now += longest_s or 0
        work = next(self.turns, None)
        if work is not None:
            work()

    def start_some(self) -> None:
        self.calls.append("start")

    def send_news(self) -> None:
        self.calls.append("news")

    def sleep(self, seconds: float) -> None:
        self.calls.append(("sleep", seconds))

    def clock(self) -> float:
        return self.now


@pytest.fixture
def played() -> Played:
    return Played()


def play(played: Any, *turns: Callable[[], object], linger_s: float = 10.0) -> list[object]:
    """What is done in these turns."""
    played.turns = iter(turns)
    guard(played, played, played, linger_s, played.clock, played.sleep)
    return played.calls


TURN = ["start", "news"]


class TestServing:
    def test_it_ends_when_it_was_alone_for_its_time(self, played: Played, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        assert play(played) == [10.0, *TURN]
        assert "no worker came and nothing runs" in caplog.text
        played.calls.clear()
        assert play(played, linger_s=0.25) == [0.25, *TURN], "to the last moment"

    def test_its_time_begins_anew_when_the_worker_has_left_and_nothing_runs(self, played: Played) -> None:
        played.has_worker, played.due = True, 7.0

        def leave() -> None:
            played.has_worker = False

        def adopt() -> None:
            played.now -= 1  # it was woken before its time
            played.live_count = 1

        def end() -> None:
            played.live_count = 0

        calls = play(played, lambda: None, leave, adopt, end)
        # The time is counted from the last look at which there was something to guard.
        assert [call for call in calls if isinstance(call, float)] == [7.0, 7.0, 3.0, 7.0, 3.0]

    def test_what_waits_to_be_started_is_not_waited_for(self, played: Played) -> None:
        played.has_worker, played.has_queue, played.finishing, played.live_count = True, True, True, 1
        played.due = 3.0

        def started() -> None:
            played.has_queue = False

        def ended() -> None:
            played.live_count = 0

        assert play(played, started, ended) == [0.0, *TURN, 3.0, *TURN]

    def test_told_to_finish_it_ends_with_the_last_attempt(self, played: Played) -> None:
        played.finishing = True
        assert play(played) == []

    def test_a_defect_is_logged_and_costs_no_attempt(self, played: Played, caplog: pytest.LogCaptureFixture) -> None:
        played.has_worker = True

        def break_down() -> None:
            raise KeyError("a defect")

        def finish() -> None:
            played.finishing = True

        assert play(played, break_down, finish) == [None, ("sleep", 0.5), None, *TURN]
        assert "a defect of the guardian" in caplog.text


class Handlers:
    """A reactor and a guardian, as far as signals are concerned."""

    def __init__(self) -> None:
        self.watched: list[tuple[int, Callable[[], None]]] = []
        self.finished: list[int] = []
        self.live_count = 2

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        assert not os.get_blocking(descriptor)
        self.watched.append((descriptor, handler))

    def finish(self, grace_ms: int) -> None:
        self.finished.append(grace_ms)


NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture
def handlers() -> Iterator[Any]:
    """Signals are heard as the guardian hears them."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    found: Any = Handlers()
    finish_on_sigterm(found, found)
    yield found
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


class TestSignals:
    @pytest.mark.parametrize(
        ("numbers", "finished"),
        [
            ((signal.SIGTERM,), [1000]),
            ((signal.SIGHUP, signal.SIGINT), []),
            ((signal.SIGHUP, signal.SIGTERM), [1000]),
        ],
    )
    def test_only_sigterm_ends_it_in_its_turn(
        self, handlers: Any, numbers: tuple[signal.Signals, ...], finished: list[int]
    ) -> None:
        for number in numbers:
            signal.raise_signal(number)
        assert handlers.finished == [], "not before its turn"
        ((_, handler),) = handlers.watched
        handler()
        assert handlers.finished == finished

    def test_nothing_is_ignored_that_tasks_would_inherit(self, handlers: Any) -> None:
        assert all(callable(signal.getsignal(number)) for number in NUMBERS)


def test_what_was_imported_is_not_looked_through_for_garbage() -> None:
    threshold = gc.get_threshold()
    frozen = gc.get_freeze_count()
    try:
        spare_collector()
        assert gc.get_threshold() == (20_000, 20, 20)
        assert gc.get_freeze_count() > frozen
    finally:
        gc.set_threshold(*threshold)


@pytest.mark.e2e
class TestProcess:
    @pytest.fixture
    def paths(self, tmp_path: Path) -> Iterator[GuardianPaths]:
        paths = GuardianPaths(tmp_path)
        paths.lock.write_text("123456789012345\n")  # of the one before
        yield paths
        pid = int(paths.lock.read_text())
        if pid != 123456789012345:
            say_hello(paths)  # from now on it hears signals
            os.kill(pid, signal.SIGTERM)
            eventually(lambda: not is_locked(paths), "the guardian has ended")
            assert not paths.socket.exists()

    def test_it_takes_hold_of_its_directory_and_of_nothing_else(self, paths: GuardianPaths) -> None:
        paths.socket.touch()  # which one that was killed has left
        limits = ("sh", "-c", 'umask 027; ulimit -n 3000; ulimit -Sn 300; exec "$@"', "sh")
        assert start(paths, limits) == 0
        assert is_locked(paths)
        pid = int(paths.lock.read_text())
        assert os.getsid(pid) == pid, "no terminal and no session of another ends it"
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Umask:\t0027" in status
        assert [path.stat().st_mode & 0o777 for path in (paths.socket, paths.log)] == [0o600, 0o600]
        hello = say_hello(paths)  # it is ready before it has raised its limit; now it serves
        assert "Max open files            3000                 3000" in Path(f"/proc/{pid}/limits").read_text()
        descriptors = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        assert not [name for name in descriptors if name.startswith("pipe:")], "its starter waited for nothing else"
        assert (hello["pid"], hello["descriptors"], hello["live"]) == (pid, 3000, 0)
        assert (hello["isolation"], len(hello["guardian"]), len(hello["build"])) == ("copy", 32, 8)
        assert os.readlink(f"/proc/{pid}/cwd") == "/", "it keeps no directory from being removed"
        for number in (signal.SIGHUP, signal.SIGINT):
            os.kill(pid, number)
        assert start(paths) == 0, "there is one"
        assert int(paths.lock.read_text()) == pid
        assert say_hello(paths)["guardian"] == hello["guardian"]

    def test_one_that_cannot_listen_says_so_to_its_starter_and_in_its_log(self, paths: GuardianPaths) -> None:
        paths.socket.mkdir()
        try:
            assert start(paths) == 1
            eventually(lambda: not is_locked(paths), "it has ended")
            assert "IsADirectoryError" in paths.log.read_text()
        finally:
            paths.lock.write_text("123456789012345\n")

    def test_a_new_lock_is_its_owners_only(self, paths: GuardianPaths) -> None:
        paths.lock.unlink()
        assert start(paths) == 0
        assert paths.lock.stat().st_mode & 0o777 == 0o600
        assert is_locked(paths)

    def test_the_command_line_needs_a_directory_and_a_known_way(self) -> None:
        for words, said in (
            ([], "--work-dir"),
            (["--work-dir", "/x", "--isolation", "none"], "invalid choice: 'none'"),
        ):
            command = [sys.executable, "-m", "iris.worker.guardian", *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert (done.returncode, said in done.stderr) == (2, True)


def start(paths: GuardianPaths, prefix: tuple[str, ...] = ()) -> int:
    return launch(paths, prefix, linger_s=30, isolation=IsolationMode.COPY).wait(60)


def is_locked(paths: GuardianPaths) -> bool:
    with paths.lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def say_hello(paths: GuardianPaths) -> Any:
    """As somebody who only looks."""
    with socket.socket(socket.AF_UNIX) as stream, paths.short_name() as name:
        stream.settimeout(20)
        stream.connect(name)
        stream.sendall(encode({"hello": {"versions": [OLDEST_VERSION, NEWEST_VERSION], "role": "looker"}}))
        reader = JsonFrameReader()
        while True:
            for message in reader.feed(stream.recv(65536)):
                return message["hello"]
