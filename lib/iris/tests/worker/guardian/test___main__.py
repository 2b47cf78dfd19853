"""The guardian's process: what it takes hold of when it begins, how long it stays, and what a defect costs."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.worker.guardian import __main__ as program
from iris.worker.guardian.__main__ import enough_descriptors, serve
from iris.worker.guardian.launch import GuardianPaths, launch
from iris.worker.guardian.protocol import NEWEST_VERSION, OLDEST_VERSION, JsonFrameReader, encode
from iris.worker.isolation.plan import IsolationMode
from iris.worker.isolation.views import no_views
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
    """All that `serve` works with; its clock goes on by what the reactor waits."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.now = 100.0
        self.finishing = False
        self.live_count = 0
        self.has_queue = False
        self.has_worker = False
        self.due: float | None = None
        self.turns: Iterator[Callable[[], object]] = iter(())
        self.hello: dict[str, Any] = {}
        self.handlers: dict[int, Callable[[], None]] = {}
        self.dispositions: dict[int, Any] = {}
        self.wakeup = -1
        self.runtime_options: dict[str, Any] = {}
        self.orphans: object = None

    def wait_s(self) -> float | None:
        return self.due

    def turn(self, longest_s: float | None) -> None:
        self.calls.append(longest_s)
        self.now += longest_s or 0
        work = next(self.turns, None)
        if work is not None:
            work()

    def call(self, name: str) -> Callable[..., None]:
        return lambda *words: self.calls.append((name, *words) if words else name)

    def set_wakeup(self, descriptor: int, warn_on_full_buffer: bool = True) -> None:
        self.wakeup = descriptor
        if descriptor < 0:
            self.calls.append("deaf")
        else:
            assert not warn_on_full_buffer
            assert not os.get_blocking(descriptor)

    def server(self, reactor: object, guardian: object, listener: object, hello: dict[str, Any]) -> object:
        self.hello = hello
        return self.part(wait_s=self.wait_s, send_news=self.call("news"), close=self.call("close server"))

    def runtime(self, reactor: object, orphans: object, **options: Any) -> object:
        self.orphans, self.runtime_options = orphans, options
        return SimpleNamespace(close=self.call("close runtime"))

    def part(self, **own: Any) -> object:
        played = self

        class Part:
            def __getattr__(self, name: str) -> Any:
                return own[name] if name in own else getattr(played, name)

        return Part()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    made = Played()

    def listen(*_: object) -> object:
        return made.part(start_some=made.call("start"), finish=made.call("finish"))

    def watch(descriptor: int, handler: Callable[[], None]) -> None:
        assert not os.get_blocking(descriptor)
        made.handlers[descriptor] = handler

    reactor = SimpleNamespace(turn=made.turn, watch=watch, close=made.call("close reactor"))
    monkeypatch.setattr(program, "open_views", lambda root, isolation: no_views())
    monkeypatch.setattr(program, "Reactor", lambda: reactor)
    monkeypatch.setattr(program, "ProcessRuntime", made.runtime)
    monkeypatch.setattr(program, "Marks", lambda root: f"marks of {root.name}")
    monkeypatch.setattr(program, "OrphanReaper", lambda marks, **options: (marks, options))
    monkeypatch.setattr(program, "Guardian", listen)
    monkeypatch.setattr(program, "GuardianServer", made.server)
    monkeypatch.setattr(program.gc, "freeze", made.call("freeze"))
    monkeypatch.setattr(program.gc, "set_threshold", made.call("threshold"))
    monkeypatch.setattr(program.signal, "signal", made.dispositions.__setitem__)
    monkeypatch.setattr(program.signal, "set_wakeup_fd", made.set_wakeup)
    monkeypatch.setattr(program.resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(program.os, "chdir", made.call("directory"))
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=made.call("sleep")))
    return made


def play(played: Played, tmp_path: Path, *turns: Callable[[], object], linger_s: float = 10.0) -> list[object]:
    """What is done from the first turn on."""
    played.turns = iter(turns)
    with socket.socket() as listener:
        serve(GuardianPaths(tmp_path), listener, linger_s, IsolationMode.COPY)
    begun = next(place for place, call in enumerate(played.calls) if isinstance(call, tuple) and call[0] == "threshold")
    return played.calls[begun + 1 :]


ENDS = ["news", "close server", "close runtime", "deaf", "close reactor"]
TURN = ["start", "news"]


class TestServing:
    def test_it_ends_when_it_was_alone_for_its_time(
        self, played: Played, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        assert play(played, tmp_path) == [10.0, *TURN, *ENDS]
        assert "no worker came and nothing runs" in caplog.text
        played.calls.clear()
        assert play(played, tmp_path, linger_s=0.25) == [0.25, *TURN, *ENDS], "to the last moment"

    def test_its_time_begins_anew_when_the_worker_has_left_and_nothing_runs(
        self, played: Played, tmp_path: Path
    ) -> None:
        played.has_worker, played.due = True, 7.0

        def leave() -> None:
            played.has_worker = False

        def adopt() -> None:
            played.now -= 1  # it was woken before its time
            played.live_count = 1

        def end() -> None:
            played.live_count = 0

        calls = play(played, tmp_path, lambda: None, leave, adopt, end)
        # The time is counted from the last look at which there was something to guard.
        assert [call for call in calls if isinstance(call, float)] == [7.0, 7.0, 3.0, 7.0, 3.0]
        assert calls[-len(ENDS) :] == ENDS

    def test_what_waits_to_be_started_is_not_waited_for(self, played: Played, tmp_path: Path) -> None:
        played.has_worker, played.has_queue, played.finishing, played.live_count = True, True, True, 1
        played.due = 3.0

        def started() -> None:
            played.has_queue = False

        def ended() -> None:
            played.live_count = 0

        assert play(played, tmp_path, started, ended) == [0.0, *TURN, 3.0, *TURN, *ENDS]

    def test_told_to_finish_it_ends_with_the_last_attempt(self, played: Played, tmp_path: Path) -> None:
        played.finishing = True
        assert play(played, tmp_path) == ENDS

    def test_a_defect_is_logged_and_costs_no_attempt(
        self, played: Played, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        played.has_worker = True

        def break_down() -> None:
            raise KeyError("a defect")

        def finish() -> None:
            played.finishing = True

        assert play(played, tmp_path, break_down, finish) == [None, ("sleep", 0.5), None, *TURN, *ENDS]
        assert "a defect of the guardian" in caplog.text

    def test_what_it_says_of_itself(self, played: Played, tmp_path: Path) -> None:
        play(played, tmp_path)
        assert played.hello["pid"] == os.getpid()
        assert played.hello["isolation"] == IsolationMode.COPY
        assert len(played.hello["guardian"]) == 32
        assert len(played.hello["build"]) == 8
        assert played.hello["descriptors"] >= 1

    def test_it_stays_in_no_directory_and_helps_callables_to_start(self, played: Played, tmp_path: Path) -> None:
        play(played, tmp_path)
        assert ("directory", "/") in played.calls
        options = played.runtime_options
        assert (options["own_cwd"], options["warm"], options["views"].mode) == ("/", True, IsolationMode.COPY)
        # Thousands of attempts come and go: the collector is not to walk all that was imported again and again.
        assert played.calls.index("freeze") < played.calls.index(("threshold", 20_000, 20, 20))

    def test_whatever_becomes_its_child_was_an_attempts(self, played: Played, tmp_path: Path) -> None:
        """It has no others: what wiped every trace of its attempt is killed when none lives that it can be of."""
        play(played, tmp_path)
        assert played.orphans == (f"marks of {tmp_path.name}", {"adopt_unmarked": True})

    def test_only_sigterm_ends_it_and_it_ignores_nothing_that_tasks_would_inherit(
        self, played: Played, tmp_path: Path
    ) -> None:
        play(played, tmp_path)
        assert set(played.dispositions) == {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
        assert all(callable(handler) for handler in played.dispositions.values())
        assert [handler(15, None) for handler in played.dispositions.values()] == [None] * 3

    @pytest.mark.parametrize(("word", "finished"), [(b"\x0f", True), (b"\x01\x02", False), (b"\x01\x0f", True)])
    def test_a_signal_is_heard_of_in_its_turn(
        self, played: Played, tmp_path: Path, word: bytes, finished: bool
    ) -> None:
        def arrive() -> None:
            ((_, handler),) = played.handlers.items()
            os.write(played.wakeup, word)
            handler()

        calls = play(played, tmp_path, arrive)
        assert [call for call in calls if isinstance(call, tuple)] == ([("finish", 1000)] if finished else [])


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
        assert "Max open files            3000                 3000" in Path(f"/proc/{pid}/limits").read_text()
        descriptors = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        assert not [name for name in descriptors if name.startswith("pipe:")], "its starter waited for nothing else"
        hello = say_hello(paths)
        assert (hello["pid"], hello["descriptors"], hello["live"]) == (pid, 3000, 0)
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
