"""When a warm interpreter is started, by whom it is used, and when it is let go; the helpers are played by threads."""

import contextlib
import gc
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from iris.worker.guardian import warm_pool as warm_pool_module
from iris.worker.guardian.warm_pool import HELPER_SOCKET, WarmPool
from iris.worker.isolation.plan import Mount
from rigging.testing import eventually


class Helper:
    """Answers like `callable_main.py --serve`, and forks nothing."""

    def __init__(self, descriptor: int, pid: int) -> None:
        self.pid = pid
        self.connection = socket.socket(fileno=os.dup(descriptor))
        self.asked: list[tuple[list[str], int, bytes]] = []
        self._forks = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                header, descriptors, _, _ = socket.recv_fds(self.connection, 4, 4)
            except ConnectionResetError:
                return  # it was let go with a word that nobody has read
            if len(header) < 4:
                return
            (size,) = struct.unpack("!I", header)
            body = self.connection.recv(size, socket.MSG_WAITALL)
            self._forks += 1
            self.connection.sendall(struct.pack("!i", self.pid * 100 + self._forks))
            gate, *others = descriptors
            word = os.read(gate, 1)
            for descriptor in descriptors:
                os.close(descriptor)
            self.asked.append((os.fsdecode(body).split("\0"), len(others), word))

    def ready(self) -> None:
        self.connection.sendall(b"R")


class WarmPoolHost:
    def __init__(self) -> None:
        self.helpers: list[Helper] = []
        self.starts: list[tuple[str, tuple[str, ...], dict[str, str]]] = []
        self.adopted: list[int] = []
        self.ended: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.refuses: OSError | None = None
        self.mounts: list[Sequence[Mount]] = []
        self.namespace_descriptor: int | None = None

    def spawn_helper(self, executable: str, argv: tuple[str, ...], env: Mapping[str, str], descriptor: int) -> int:
        if self.refuses is not None:
            raise self.refuses
        self.starts.append((executable, argv, dict(env)))
        self.helpers.append(Helper(descriptor, 1000 + len(self.helpers)))
        return self.helpers[-1].pid

    def namespace(self, mounts: Sequence[Mount]) -> int | None:
        self.mounts.append(mounts)
        if mounts:
            self.namespace_descriptor = os.open("/proc/self/ns/mnt", os.O_RDONLY)
            return self.namespace_descriptor
        return None

    def adopt(self, pid: int) -> None:
        self.adopted.append(pid)

    def watch_helper(self, pid: int, ended: Callable[[], None]) -> None:
        self.ended.append(ended)

    def call_later(self, seconds: float, work: Callable[[], None]) -> None:
        self.timers.append((seconds, work))


class Bench:
    def __init__(self) -> None:
        self.host = WarmPoolHost()
        self.warm_pool = WarmPool(self.host)
        self.null = os.open(os.devnull, os.O_RDWR)

    def start(self, sharer: str = "ann", payload: str = "/p", mounts: Sequence[Mount] = (), **env: str) -> int | None:
        variables = {"A": "1", "IRIS_CLOUDPICKLE": "c", "IRIS_ATTEMPT_ID": payload, "TMPDIR": f"/t{payload}", **env}
        argv = ("python", "-P", "main.py", payload)
        return self.warm_pool.start(sharer, "/bin/python", argv, variables, "/work", self.null, self.null, mounts)

    def warm(self, sharer: str = "ann", **env: str) -> Helper:
        """A helper that is ready."""
        before = len(self.host.helpers)
        assert [self.start(sharer, **env) for _ in range(2)] == [None, None]
        assert len(self.host.helpers) == before + 1
        self.host.helpers[-1].ready()
        return self.host.helpers[-1]


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The helpers that were killed."""
    found: list[int] = []

    def kill(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        found.append(pid)

    monkeypatch.setattr(warm_pool_module.os, "kill", kill)
    return found


@pytest.fixture
def bench(killed: list[int]) -> Iterator[Bench]:
    made = Bench()
    yield made
    made.warm_pool.close()
    os.close(made.null)


def test_the_second_start_of_a_kind_starts_a_helper_and_the_third_may_use_it(bench: Bench) -> None:
    assert bench.start(payload="/1") is None
    assert bench.host.starts == []
    assert bench.start(payload="/2") is None
    ((executable, argv, env),) = bench.host.starts
    assert (executable, argv) == ("/bin/python", ("python", "-P", "main.py", "--serve", str(HELPER_SOCKET)))
    assert env == {"A": "1", "IRIS_CLOUDPICKLE": "c"}, "nothing of an attempt's own"
    assert bench.start(payload="/3") is None, "it has not said that it is ready"
    bench.host.helpers[0].ready()
    assert bench.start(payload="/4") == 100_001
    assert bench.start(payload="/5") == 100_002
    assert bench.host.adopted == [100_001, 100_002]
    assert len(bench.host.starts) == 1


def test_a_fork_is_told_its_payload_directory_and_own_variables_and_then_to_begin(bench: Bench) -> None:
    helper = bench.warm()
    bench.start(payload="/p q", IRIS_TASK_ID="x=y")
    eventually(lambda: bool(helper.asked), "it was asked")
    ((payload, cwd, *variables), descriptors, word) = helper.asked[0]
    assert (payload, cwd, descriptors, word) == ("/p q", "/work", 2, b"g")
    assert sorted(variables) == ["IRIS_ATTEMPT_ID=/p q", "IRIS_TASK_ID=x=y", "TMPDIR=/t/p q"]


def test_it_enters_the_namespace_of_its_mounts_which_is_not_kept(bench: Bench) -> None:
    helper = bench.warm()
    bench.start(mounts=(Mount("/a", "/b"),))
    eventually(lambda: bool(helper.asked), "it was asked")
    assert helper.asked[0][1] == 3
    assert bench.host.mounts == [(Mount("/a", "/b"),)]
    assert bench.host.namespace_descriptor is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(bench.host.namespace_descriptor)


@pytest.mark.parametrize("other", [{"sharer": "bob"}, {"A": "2"}, {"B": "1"}, {"IRIS_WORK_DIR": "/w"}])
def test_one_that_would_start_in_another_way_gets_another_helper(bench: Bench, other: dict[str, str]) -> None:
    bench.warm()
    assert bench.start(**other) is None
    assert bench.start(**other) is None
    assert len(bench.host.helpers) == 2


def test_the_one_that_was_not_used_for_longest_makes_room(bench: Bench, killed: list[int]) -> None:
    for sharer in ("a", "b", "c"):
        bench.warm(sharer)
    assert killed == []
    assert bench.start("a") is not None
    bench.warm("d")
    assert killed == [1001], "of b; a was used since"
    assert bench.start("a") is not None
    assert bench.start("b") is None


def test_one_that_nobody_used_for_a_minute_ends_and_one_that_was_used_stays(bench: Bench, killed: list[int]) -> None:
    bench.warm()
    ((seconds, look),) = bench.host.timers
    assert seconds == 60.0
    bench.start()
    look()
    assert killed == []
    assert len(bench.host.timers) == 2
    bench.host.timers[1][1]()
    assert killed == [1000]
    assert bench.start() is None, "and it is started anew after as many as before"
    assert len(bench.host.helpers) == 1
    bench.warm("ann")
    look()
    assert killed == [1000], "a timer of a former helper does nothing to this one"


def test_one_that_ended_by_itself_is_not_killed_and_not_used(bench: Bench, killed: list[int]) -> None:
    bench.warm()
    bench.host.ended[0]()
    assert bench.start() is None
    assert killed == []
    assert bench.start() is None
    assert len(bench.host.helpers) == 2


def test_one_that_does_not_answer_is_given_up_and_the_start_goes_the_usual_way(
    bench: Bench, killed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    helper = bench.warm()
    helper.connection.shutdown(socket.SHUT_RDWR)
    assert bench.start() is None
    assert killed == [1000]
    assert "a warm interpreter of ann does not answer" in caplog.text


def test_one_that_ends_while_it_starts_is_given_up(bench: Bench, killed: list[int]) -> None:
    for _ in range(2):
        bench.start()
    bench.host.helpers[0].connection.sendall(b"?")
    assert bench.start() is None
    assert killed == [1000]


def test_where_none_can_be_started_all_go_the_usual_way(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.host.refuses = OSError(12, "Cannot allocate memory")
    assert [bench.start() for _ in range(3)] == [None] * 3
    assert "cannot start a warm interpreter: [Errno 12] Cannot allocate memory" in caplog.text


def test_all_end_with_the_warm_pool(bench: Bench, killed: list[int]) -> None:
    for sharer in ("a", "b"):
        bench.warm(sharer)
    bench.warm_pool.close()
    assert sorted(killed) == [1000, 1001]
    bench.warm_pool.close()
    assert len(killed) == 2


def open_files() -> set[str]:
    """What this process has open; what other tests left open may be closed at any time, and counts for nothing."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found


def test_a_helper_takes_one_descriptor_and_one_that_cannot_start_none(bench: Bench) -> None:
    bench.start()
    before = open_files()
    bench.host.refuses = OSError(12, "Cannot allocate memory")
    bench.start()
    assert open_files() - before == set()
    bench.host.refuses = None
    bench.start()
    assert len(open_files() - before) == 2, "and the one of the helper that is played"


def test_no_descriptor_is_left_by_forks(bench: Bench) -> None:
    helper = bench.warm()

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    bench.start()
    eventually(lambda: len(helper.asked) == 1, "the first")
    gc.collect()  # as above
    before = count()
    for _ in range(5):
        bench.start()
    eventually(lambda: len(helper.asked) == 6, "all were asked")
    assert count() == before
