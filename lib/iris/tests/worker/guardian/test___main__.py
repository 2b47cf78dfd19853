import fcntl
import gc
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.worker.guardian.__main__ import enough_descriptors, finish_on_sigterm, guard, main, spare_collector
from iris.worker.guardian.launch import GuardianPaths, launch
from iris.worker.guardian.protocol import VERSION, JsonFrameReader, encode
from iris.worker.isolation.plan import IsolationMode


@pytest.mark.parametrize(
    ("soft", "hard", "limit"),
    [(1024, -1, 4096), (1024, 2**20, 4096), (256, 1000, 1000), (5000, 2**20, 5000), (5000, -1, 5000), (-1, -1, 4096)],
)
def test_the_limit_of_open_files_is_raised_as_far_as_is_useful_not_lowered(soft: int, hard: int, limit: int) -> None:
    assert enough_descriptors(soft, hard) == limit


class Played:
    """All that `guard` works with; its clock goes on by what the reactor waits."""

    def __init__(self, **state: Any) -> None:
        self.calls: list[object] = []
        self.now = 100.0
        self.finishing = self.has_queue = self.has_worker = False
        self.live_count = 0
        self.due: float | None = None
        self.turns: list[dict[str, Any]] = []
        vars(self).update(state)

    def wait_s(self) -> float | None:
        return self.due

    def turn(self, longest_s: float | None) -> None:
        self.calls.append(longest_s)
        self.now += longest_s or 0
        change = self.turns.pop(0) if self.turns else {}
        if "error" in change:
            raise change["error"]
        vars(self).update(change)

    def start_some(self) -> None:
        self.calls.append("start")

    def send_news(self) -> None:
        self.calls.append("news")

    def sleep(self, seconds: float) -> None:
        self.calls.append(("sleep", seconds))

    def play(self, *turns: dict[str, Any], linger_s: float = 10.0) -> list[object]:
        """What is done; in each turn something changes."""
        self.turns = list(turns)
        played: Any = self
        guard(played, played, played, linger_s, lambda: self.now, self.sleep)
        return self.calls


TURN = ["start", "news"]


class TestServing:
    @pytest.mark.parametrize("linger_s", [10.0, 0.25])
    def test_it_ends_when_it_was_alone_for_its_time(self, caplog: pytest.LogCaptureFixture, linger_s: float) -> None:
        caplog.set_level("INFO")
        assert Played().play(linger_s=linger_s) == [linger_s, *TURN], "to the last moment"
        assert "no worker connected and no task is running" in caplog.text

    def test_its_time_begins_anew_when_the_worker_has_left_and_nothing_runs(self) -> None:
        leaves, adopts, ends = {"has_worker": False}, {"now": 116.0, "live_count": 1}, {"live_count": 0}
        calls = Played(has_worker=True, due=7.0).play({}, leaves, adopts, ends)
        # The time is counted from the last look at which there was something to guard.
        assert [call for call in calls if isinstance(call, float)] == [7.0, 7.0, 3.0, 7.0, 3.0]

    def test_what_waits_to_be_started_is_not_waited_for(self) -> None:
        played = Played(has_worker=True, has_queue=True, finishing=True, live_count=1, due=3.0)
        assert played.play({"has_queue": False}, {"live_count": 0}) == [0.0, *TURN, 3.0, *TURN]

    def test_told_to_finish_it_ends_with_the_last_attempt(self) -> None:
        assert Played(finishing=True).play() == []

    def test_a_defect_is_logged_and_costs_no_attempt(self, caplog: pytest.LogCaptureFixture) -> None:
        calls = Played(has_worker=True).play({"error": KeyError("a defect")}, {"finishing": True})
        assert calls == [None, ("sleep", 0.5), None, *TURN]
        assert "a bug in the guardian" in caplog.text


NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture
def handlers() -> Iterator[Any]:
    """A reactor and a guardian, as far as signals are concerned, which are heard as the guardian hears them."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    found: Any = SimpleNamespace(watched=[], finished=[], live_count=2)
    found.watch = lambda *what: found.watched.append(what)
    found.finish = found.finished.append
    finish_on_sigterm(found, found)
    yield found
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


class TestSignals:
    @pytest.mark.parametrize(
        ("numbers", "finished"), [([signal.SIGHUP, signal.SIGINT], []), ([signal.SIGHUP, signal.SIGTERM], [1000])]
    )
    def test_sigterm_ends_it_in_turn(self, handlers: Any, numbers: list[signal.Signals], finished: list[int]) -> None:
        for number in numbers:
            signal.raise_signal(number)
        assert handlers.finished == [], "not before its turn"
        ((descriptor, handler),) = handlers.watched
        assert not os.get_blocking(descriptor)
        handler()
        assert handlers.finished == finished
        assert all(callable(signal.getsignal(number)) for number in NUMBERS), "what is ignored tasks would inherit"


def test_what_was_imported_is_not_looked_through_for_garbage() -> None:
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    spare_collector()
    found = gc.get_threshold()
    gc.set_threshold(*threshold)
    assert found == (20_000, 20, 20)
    assert gc.get_freeze_count() > frozen


@pytest.mark.parametrize(
    ("words", "said"), [([], "--work-dir"), (["--work-dir", "/x", "--isolation", "none"], "invalid choice: 'none'")]
)
def test_it_needs_a_directory_and_a_known_way(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert said in capsys.readouterr().err


@pytest.mark.process
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
        stream.sendall(encode({"hello": {"version": VERSION, "role": "looker"}}))
        reader = JsonFrameReader()
        while True:
            for message in reader.feed(stream.recv(65536)):
                return message["hello"]
