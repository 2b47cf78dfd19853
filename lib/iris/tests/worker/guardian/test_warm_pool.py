import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from iris.worker.guardian.warm_pool import WarmPool
from iris.worker.isolation.plan import Mount

ENV = {"A": "1", "IRIS_WORK_DIR": "/work", "IRIS_CLOUDPICKLE": "c", "IRIS_TASK_ID": "/u/j/0", "TMPDIR": "/tmp/a"}
MOUNTS = (Mount("/b", "/b"),)


class Helper:
    """One that was spawned, as its process has it: the test says what it answers, ahead of what it is asked."""

    def __init__(self, pid: int, executable: str, argv: tuple[str, ...], env: Mapping[str, str], descriptor: int):
        self.pid, self.executable, self.argv, self.env = pid, executable, argv, dict(env)
        self.stream = socket.socket(fileno=os.dup(descriptor))
        self.stream.settimeout(20)
        self.ended: Callable[[], None] = lambda: None

    def ready(self, *pids: int) -> "Helper":
        self.stream.sendall(b"R" + b"".join(struct.pack("!i", pid) for pid in pids))
        return self

    def request(self) -> tuple[list[bytes], bytes, int]:
        """The words of the next request, what its gate says, and how many descriptors come besides."""
        header, descriptors, _, _ = socket.recv_fds(self.stream, 4, 4)
        (size,) = struct.unpack("!I", header)
        gate = os.read(descriptors[0], 2)
        for descriptor in descriptors:
            os.close(descriptor)
        return self.stream.recv(size, socket.MSG_WAITALL).split(b"\0"), gate, len(descriptors) - 1


class WarmPoolHost:
    def __init__(self) -> None:
        self.helpers: list[Helper] = []
        self.adopted: list[int] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.error: OSError | None = None
        self.adopt_error: OSError | None = None
        self.namespaces: list[int] = []
        self.warm_pool = WarmPool(self)

    def spawn_helper(self, executable: str, argv: tuple[str, ...], env: Mapping[str, str], descriptor: int) -> int:
        if self.error is not None:
            raise self.error
        self.helpers.append(Helper(1000 + len(self.helpers), executable, argv, env, descriptor))
        return self.helpers[-1].pid

    def namespace(self, mounts: Sequence[Mount]) -> int | None:
        if not mounts:
            return None
        self.namespaces.append(os.open(os.devnull, os.O_RDONLY))
        return self.namespaces[-1]

    def adopt(self, pid: int) -> None:
        if self.adopt_error is not None:
            raise self.adopt_error
        self.adopted.append(pid)

    def watch_helper(self, pid: int, ended: Callable[[], None]) -> None:
        next(helper for helper in self.helpers if helper.pid == pid).ended = ended

    def call_later(self, seconds: float, work: Callable[[], None]) -> None:
        self.later.append((seconds, work))

    def start(self, sharer: str = "ann", payload: str = "/p", mounts: Sequence[Mount] = (), **env: str) -> int | None:
        argv = ("/bin/python", "-P", "main.py", payload)
        with open(os.devnull) as out:
            return self.warm_pool.start(sharer, "/bin/python", argv, {**ENV, **env}, "/cwd", out.fileno(), 2, mounts)

    def warm(self, sharer: str, *pids: int) -> Helper:
        """A helper that has started."""
        assert [self.start(sharer), self.start(sharer)] == [None, None]
        return self.helpers[-1].ready(*pids)

    def passes(self) -> None:
        """The next time at which something was to be done has come."""
        works, self.later = self.later, []
        for _, work in works:
            work()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The helpers that were killed."""
    found: list[int] = []
    kill = {signal.SIGKILL: found.append}
    monkeypatch.setattr(os, "kill", lambda pid, number: kill[number](pid))
    return found


@pytest.fixture
def host(killed: list[int]) -> Iterator[WarmPoolHost]:
    made = WarmPoolHost()
    yield made
    made.warm_pool.close()
    for helper in made.helpers:
        helper.stream.close()


def open_descriptors() -> set[int]:
    return set(map(int, os.listdir("/proc/self/fd")))


def test_the_second_of_a_kind_starts_a_helper_and_the_next_come_from_it_once_it_is_ready(host: WarmPoolHost) -> None:
    assert host.start() is None
    assert host.helpers == [], "one alone is not worth it"
    assert host.start(payload="/q", IRIS_TASK_ID="/u/j/1", TMPDIR="/tmp/b") is None
    (helper,) = host.helpers
    assert (helper.executable, helper.argv[1:]) == ("/bin/python", ("-P", "main.py", "--serve", "3"))
    assert helper.env == {"A": "1", "IRIS_WORK_DIR": "/work", "IRIS_CLOUDPICKLE": "c"}, "nothing of the one attempt"
    assert host.start() is None, "it has not begun yet: nobody waits for it"
    helper.ready(501, 502, 503)
    before = len(open_descriptors())
    assert [host.start(payload="/q r", IRIS_TASK_ID="x=y"), host.start(mounts=MOUNTS)] == [501, 502]
    assert host.adopted == [501, 502]
    assert host.namespaces[0] not in open_descriptors()
    assert helper.request() == ([b"/q r", b"/cwd", b"IRIS_TASK_ID=x=y", b"TMPDIR=/tmp/a"], b"g", 2)
    assert helper.request()[1:] == (b"g", 3), "the last is the namespace"
    assert len(open_descriptors()) == before
    host.adopt_error = OSError("no such process")
    assert host.start() is None
    assert helper.request()[1] == b"", "what cannot be adopted does not begin"


def test_those_that_would_start_otherwise_have_helpers_of_their_own(host: WarmPoolHost) -> None:
    host.warm("ann", 501)
    assert [host.start("bob"), host.start(A="2"), host.start(B="1"), host.start(IRIS_WORK_DIR="/other")] == [None] * 4
    assert len(host.helpers) == 1
    assert [host.start("bob"), host.start()] == [None, 501]
    assert len(host.helpers) == 2


@pytest.mark.parametrize("answer", [b"", b"E", b"R12"])
def test_one_that_fails_is_given_up_and_the_next_begins_from_the_start(
    host: WarmPoolHost, killed: list[int], caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    assert [host.start(), host.start()] == [None, None]
    host.helpers[0].stream.sendall(answer)
    host.helpers[0].stream.shutdown(socket.SHUT_WR)
    assert host.start(mounts=MOUNTS) is None
    assert "a warm interpreter of ann does not answer" in caplog.text
    assert (killed, host.adopted) == ([1000], [])
    assert not open_descriptors() & {*host.namespaces}
    assert (host.start(), len(host.helpers)) == (None, 1), "it must be wanted again"
    assert (host.start(), len(host.helpers)) == (None, 2)


def test_a_helper_that_cannot_start_costs_only_a_line(host: WarmPoolHost, caplog: pytest.LogCaptureFixture) -> None:
    host.error = OSError("no memory")
    before = open_descriptors()
    assert [host.start() for _ in range(3)] == [None] * 3
    assert open_descriptors() <= before
    assert "cannot start a warm interpreter: no memory" in caplog.text
    assert host.later == []


def test_of_more_than_three_the_one_goes_that_was_not_used_for_longest(host: WarmPoolHost, killed: list[int]) -> None:
    host.warm("ann", 501, 502)
    bob = host.warm("bob")
    host.warm("cid")
    assert host.start("ann") == 501
    assert killed == []
    host.warm("dan")
    assert killed == [bob.pid]
    with pytest.raises(ConnectionResetError):
        bob.stream.recv(1)  # it is hung up on before it read anything
    assert host.start("ann") == 502


def test_one_that_nobody_wants_for_a_minute_goes(host: WarmPoolHost, killed: list[int]) -> None:
    host.warm("ann", 501, 502)
    assert [seconds for seconds, _ in host.later] == [60.0]
    for pid in (501, 502):
        assert host.start() == pid
        host.passes()
    assert (killed, len(host.later)) == ([], 1)
    host.passes()
    assert killed == [1000]
    host.warm("ann")
    host.passes()
    assert len(killed) == 2, "nobody wanted the second either"


def test_the_look_after_one_that_is_gone_is_not_for_its_successor(host: WarmPoolHost, killed: list[int]) -> None:
    host.warm("ann").ended()
    host.warm("ann", 501)
    (_, first_look), _ = host.later
    first_look()
    assert host.start() == 501
    assert (killed, len(host.helpers)) == ([], 2)


def test_one_that_has_ended_is_not_killed_as_its_number_may_be_anothers(host: WarmPoolHost, killed: list[int]) -> None:
    host.warm("ann").ended()
    host.warm_pool.close()
    assert killed == []
    bob, cid = host.warm("bob"), host.warm("cid")
    host.warm_pool.close()
    host.warm_pool.close()
    assert killed == [bob.pid, cid.pid]
    bob.ended()
    assert host.start("bob") is None


def test_kinds_that_came_once_are_not_remembered_for_ever(host: WarmPoolHost) -> None:
    for number in range(1001):
        host.start(f"user{number}")
    host.start("user7")
    assert host.helpers == []
