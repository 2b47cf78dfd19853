"""Which starts get a warm interpreter, what it is told, when it goes; and that its forks behave like cold starts."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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


WORKER = '''
"""Runs every case again and again, so that the first runs are cold and the last one is warm."""
import json, os, sys, time, cloudpickle
from pathlib import Path
from iris.worker import callable_main
from iris.worker.guardian.orphans import Marks, OrphanReaper, become_subreaper
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.reactor import Reactor
from iris.worker.processes import ProcessSpec

MINE = {"MINE": "m", "IRIS_CLOUDPICKLE": "", "PYTHONPATH": sys.argv[2]}

def cases():
    def look():
        import atexit, threading
        atexit.register(lambda: print("exit handler", flush=True))
        def late():
            threading.main_thread().join()
            print("thread")
        threading.Thread(target=late).start()
        print(os.getcwd(), os.environ["MINE"], os.environ["IRIS_ATTEMPT_ID"], sorted(sys.argv[1:]) != [], flush=True)
        print(os.getppid(), os.getsid(0) == os.getpid(), repr(sys.stdin.read()), "IRIS_CLOUDPICKLE" in os.environ)
        print(sorted(pair for pair in os.environ.items() if pair[0] != "IRIS_ATTEMPT_ID"))
        print("to stderr", file=sys.stderr)
        import random
        return random.random()
    return {
        "look": (look, ()),
        "code": (sys.exit, (3,)),
        "large code": (sys.exit, (260,)),
        "text": (sys.exit, ("gone wrong",)),
        "none": (sys.exit, (None,)),
        "raise": (int, ("x",)),
        "signal": (lambda: os.kill(os.getpid(), 9), ()),
        "child": (os.system, ("sleep 600 & echo started",)),
    }

class Seen:
    def __init__(self, reactor): self.reactor, self.out, self.exit = reactor, {False: b"", True: b""}, None
    def on_output(self, is_stderr, data): self.out[is_stderr] += data
    def on_exit(self, exit): self.exit = exit.code, exit.signal
    def ended(self):
        while self.exit is None:
            self.reactor.turn(1.0)
        return self.exit

def main(directory):
    become_subreaper()
    reactor = Reactor()
    os.chdir(directory)
    orphans = OrphanReaper(Marks(directory), adopt_unmarked=True)
    runtime = ProcessRuntime(reactor, orphans, own_cwd=str(directory), warm=True)
    script = str(Path(callable_main.__file__))
    place = directory / "place"
    place.mkdir()
    number = 0

    def run(function, args=(), sharer="ann", is_killed=False, **variables):
        nonlocal number
        number += 1
        payload = directory / "payload"
        payload.write_bytes(cloudpickle.dumps((function, args, {})))
        env = {**os.environ, **MINE, "IRIS_ATTEMPT_ID": f"/ann/j/0:{number}", **variables}
        seen = Seen(reactor)
        argv = (sys.executable, "-P", script, str(payload))
        process = runtime.start(ProcessSpec(f"/ann/j/0:{number}", argv, env, str(place), sharer), seen)
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\\0")
        if is_killed: process.kill()
        ended = seen.ended()
        out = seen.out[False].decode().replace(f":{number} ", ":N ").replace(str(os.getpid()), "WORKER")
        return b"--serve" in words, {"out": out, "err": seen.out[True].decode().splitlines()[-1:], "ended": ended}

    def until(warm, *case, **options):
        for _ in range(400):
            is_warm, told = run(*case, **options)
            if is_warm == warm: return told
            reactor.turn(0.02)
        raise SystemExit("never " + ("warm" if warm else "cold"))

    report = {}
    for name, case in cases().items():
        report[name] = [until(False, *case, sharer=f"cold {name}"), until(True, *case)]
    # Another user, and other variables, have helpers of their own.
    report["strangers"] = [run(print, sharer="bob")[0], run(print, MINE="n")[0]]
    report["killed"] = run(time.sleep, (600,), is_killed=True)[1]["ended"]
    runtime.close()
    for _ in range(500):
        if not Path(f"/proc/self/task/{os.getpid()}/children").read_text().strip(): break
        reactor.turn(0.01)
    report["children"] = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    print(json.dumps(report))

main(Path(sys.argv[1]))
'''


@pytest.fixture(scope="module", params=["sibling", "orphan"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the cases did; forks are made the worker's children by either way, the second without ctypes."""
    directory = tmp_path_factory.mktemp("warm_pool")
    (directory / "worker.py").write_text(WORKER)
    modules = directory / "modules"
    modules.mkdir()
    if request.param == "orphan":
        (modules / "ctypes.py").write_text("raise ImportError('this Python has none')")
    done = subprocess.run(
        [sys.executable, str(directory / "worker.py"), str(directory), str(modules)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ENDS = {
    "look": [0, 0], "code": [3, 0], "large code": [4, 0], "text": [1, 0], "none": [0, 0], "raise": [1, 0],
    "signal": [0, 9], "child": [0, 0],
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("case", ENDS)
def test_a_warm_start_does_and_ends_like_a_cold_one(report: Any, case: str) -> None:
    cold, warm = report[case]
    assert warm == cold
    assert warm["ended"] == ENDS[case]


@pytest.mark.process
def test_what_a_callable_finds_is_its_own_and_nothing_of_it_is_left(report: Any) -> None:
    _, warm = report["look"]
    first, second, environment, *rest = warm["out"].splitlines()
    assert "('MINE', 'm')" in environment
    assert first.endswith("place m /ann/j/0:N True")
    assert second == "WORKER True '' False"
    assert rest == ["thread", "exit handler"]
    assert warm["err"] == ["to stderr"]
    assert report["strangers"] == [False, False], "helpers are not shared with others"
    assert (report["killed"], report["children"]) == ([0, 9], "")
