"""A guardian's socket: who may speak with it, what each hears, and peers that do not listen or speak garbage."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.worker.guardian.protocol import VERSION, JsonFrameReader, encode
from iris.worker.guardian.reactor import Reactor
from iris.worker.guardian.server import GuardianServer


class Guardian:
    """Notes what it is told; the test says what is new."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.news: list[list[Any]] = []
        self.news_due: float | None = None
        self.live_count = 3
        self.finishing = False
        self.left = 0

    def do(self, *request: Any) -> None:
        self.asked.append(request)

    def take_news(self) -> list[list[Any]]:
        news, self.news, self.news_due = self.news, [], None
        return news

    def held(self) -> list[dict[str, Any]]:
        return [{"id": "a"}]

    def worker_left(self) -> None:
        self.left += 1


class Peer:
    """One end of a connection, as a worker has it."""

    def __init__(self, bench: "Bench") -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(bench.path)
        self.stream.settimeout(20)
        self._bench = bench
        self._reader = JsonFrameReader(1 << 26)
        bench.turn()

    def say(self, message: Any) -> "Peer":
        self.stream.sendall(message if isinstance(message, bytes) else encode(message))
        self._bench.turn()
        return self

    def hello(self, role: str = "worker", version: int = VERSION) -> "Peer":
        return self.say({"hello": {"version": version, "pid": 7, "role": role}})

    def hear(self) -> list[dict[str, Any]]:
        """What has come so far; None stands for the end."""
        found: list[Any] = []
        self.stream.setblocking(False)
        while True:
            try:
                data = self.stream.recv(1 << 20)
            except BlockingIOError:
                return found
            except ConnectionResetError:
                data = b""
            if not data:
                return [*found, None]
            found += self._reader.feed(data)
            self._bench.turn()


class Bench:
    def __init__(self, path: Path, is_own: Any = None) -> None:
        self.path = str(path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.now = 50.0
        self.reactor = Reactor(lambda: self.now)
        self.guardian = Guardian()
        guardian: Any = self.guardian
        options = {} if is_own is None else {"is_own": is_own}
        self.server = GuardianServer(self.reactor, guardian, self.listener, {"guardian": "g1", "pid": 5}, **options)
        self.peers: list[Peer] = []

    def peer(self) -> Peer:
        self.peers.append(Peer(self))
        return self.peers[-1]

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(3):
            self.reactor.turn(0)

    def is_new(self, *news: Any, due_in_s: float = -1.0) -> None:
        """The guardian has this to tell, and the server is asked to do so."""
        self.guardian.news, self.guardian.news_due = list(news), time.monotonic() + due_in_s
        self.server.send_news()

    def close(self) -> None:
        self.server.close()
        self.reactor.close()
        for peer in self.peers:
            peer.stream.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "s")
    yield made
    made.close()


def test_a_worker_is_told_who_guards_what_is_held_and_in_which_version(bench: Bench) -> None:
    worker = bench.peer().hello()
    assert worker.hear() == [{"hello": {"guardian": "g1", "pid": 5, "version": VERSION, "held": [{"id": "a"}]}}]
    assert bench.server.has_worker
    bench.is_new()
    assert worker.hear() == [], "nothing when there is nothing after all"


def test_one_that_only_looks_is_told_how_many_live_and_changes_nothing(bench: Bench) -> None:
    looks = bench.peer().hello("control")
    assert looks.hear() == [{"hello": {"guardian": "g1", "pid": 5, "version": VERSION, "live": 3}}]
    looks.say({"do": [["finish", 0]]})
    assert bench.guardian.asked == []
    assert not bench.server.has_worker
    looks.stream.close()
    bench.turn()
    assert bench.guardian.left == 0


def test_requests_are_carried_out_in_their_order_and_nonsense_is_passed_over(bench: Bench) -> None:
    worker = bench.peer().hello()
    requests = [["start", {"id": "b"}], [], "stop", 7, ["stop", "b", 5, None]]
    for message in ({"do": requests}, {"do": {"stop": 1}}, {"other": 1}, {"do": [["forget", "b"]]}):
        worker.say(message)
    assert bench.guardian.asked == [("start", {"id": "b"}), ("stop", "b", 5, None), ("forget", "b")]
    assert len(worker.hear()) == 1, "and it is still the worker"


LARGE = {"do": [["start", {"id": "x" * 100_000}]]}
NO_JSON = b"\x00\x00\x00\x02no"


@pytest.mark.parametrize(
    "first",
    [{"do": [["finish", 0]]}, {"hello": 7}, {}, NO_JSON, b"\xff\xff\xff\xff", encode([]), LARGE],  # type: ignore[arg-type]
    ids=["do", "odd hello", "nothing", "no JSON", "endless", "a list", "large"],
)
def test_one_that_does_not_begin_with_hello_is_hung_up_on(bench: Bench, first: Any) -> None:
    stranger = bench.peer().say(first)
    assert stranger.hear() == [None]
    assert bench.guardian.asked == []
    worker = bench.peer().hello()
    assert worker.hear()[0]["hello"]["guardian"] == "g1", "others are served"
    worker.say(LARGE)
    assert len(bench.guardian.asked) == 1, "after the hello a frame may be large"
    worker.say(NO_JSON)
    assert worker.hear() == [None]
    assert (bench.guardian.left, bench.server.has_worker) == (1, False)


def test_there_is_one_worker_until_it_is_gone_and_none_of_another_version_or_at_the_end(bench: Bench) -> None:
    (refused, end) = bench.peer().hello(version=VERSION + 1).hear()
    assert refused["version"] == VERSION
    assert f"the worker uses protocol version {VERSION + 1}, the guardian {VERSION}" in refused["refused"]
    assert (end, bench.server.has_worker) == (None, False)
    first = bench.peer().hello()
    assert bench.peer().hello().hear() == [{"refused": f"process {os.getpid()} is its worker"}, None]
    first.stream.close()
    assert bench.peer().hello().hear()[0]["hello"]["held"] == [{"id": "a"}]
    assert (bench.guardian.left, bench.server.has_worker) == (1, True)
    bench.guardian.finishing = True
    assert bench.peer().hello().hear() == [{"refused": "it is exiting"}, None]


def test_a_worker_whose_end_was_not_read_yet_makes_room_after_its_last_requests(bench: Bench) -> None:
    first = bench.peer().hello()
    second = bench.peer()
    second.stream.sendall(encode({"hello": {"version": VERSION, "role": "worker"}}))
    first.stream.sendall(encode({"do": [["stop", "a", 0, None]]}))
    first.stream.close()
    bench.turn()
    assert second.hear()[0]["hello"]["held"] == [{"id": "a"}]
    assert bench.guardian.asked == [("stop", "a", 0, None)]


def test_processes_of_others_are_not_listened_to(tmp_path: Path) -> None:
    for is_own in (True, False):
        answer = {os.getuid(): is_own}
        bench = Bench(tmp_path / str(is_own), answer.__getitem__)
        assert bench.peer().hear() == ([] if is_own else [None])
        bench.close()


def test_one_that_says_nothing_for_ten_seconds_is_hung_up_on(bench: Bench) -> None:
    silent, worker = bench.peer(), bench.peer().hello()
    bench.turn(9.9)
    assert silent.hear() == []
    bench.turn(0.2)
    assert silent.hear() == [None]
    assert len(worker.hear()) == 1


def test_no_more_than_32_are_served_at_a_time(bench: Bench) -> None:
    peers = [bench.peer() for _ in range(33)]
    assert [peer.hear() for peer in peers] == [[]] * 32 + [[None]]
    peers[0].stream.close()
    bench.turn()
    assert bench.peer().hear() == []


class TestNews:
    WORDS = "x" * 3_000_000

    def test_they_are_told_when_they_are_due_and_to_a_worker(self, bench: Bench) -> None:
        bench.is_new(["grew", "a", 1])
        assert bench.guardian.news, "nobody is there to be told"
        assert bench.server.wait_s() is None
        worker = bench.peer().hello()
        assert bench.server.wait_s() == 0.0
        bench.server.send_news()
        assert worker.hear()[1:] == [{"news": [["grew", "a", 1]]}]
        bench.server.send_news()
        assert worker.hear() == []
        assert bench.server.wait_s() is None
        bench.is_new(["grew", "a", 1], due_in_s=600)
        left = bench.server.wait_s()
        assert left is not None
        assert 590 < left <= 600
        assert worker.hear() == []

    def test_a_worker_that_does_not_listen_is_told_no_more_than_one_frame_at_a_time(self, bench: Bench) -> None:
        worker = bench.peer().hello()
        worker.hear()
        for number in range(2):
            bench.is_new([self.WORDS, number])
        assert bench.guardian.news == [[self.WORDS, 1]], "the second waits with the guardian"
        assert bench.server.wait_s() is None, "there is nothing to do until it reads"
        assert worker.hear() == [{"news": [[self.WORDS, 0]]}]
        bench.turn()
        assert bench.server.wait_s() == 0.0
        bench.server.send_news()
        assert worker.hear() == [{"news": [[self.WORDS, 1]]}]
        worker.say({"do": [["forget", "a"]]})
        assert bench.guardian.asked == [("forget", "a")]

    def test_the_next_worker_is_told_all_although_the_last_one_did_not_listen(self, bench: Bench) -> None:
        """It may have the descriptor of the last one, which was waited for to have room."""
        descriptors = []
        for number in range(2):
            worker = bench.peer().hello()
            worker.hear()
            descriptors.append(max(map(int, os.listdir("/proc/self/fd"))))
            bench.is_new([self.WORDS, number])
            if number == 0:
                worker.stream.close()
                bench.turn()
        assert descriptors[0] == descriptors[1]
        assert worker.hear() == [{"news": [[self.WORDS, 1]]}]


def test_its_end_ends_all_connections(bench: Bench) -> None:
    worker, looks = bench.peer().hello(), bench.peer().hello("control")
    bench.server.close()
    assert (worker.hear()[-1], looks.hear()[-1]) == (None, None)
    assert bench.guardian.left == 1
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as late:
        late.connect(bench.path)
