"""Commands as processes: what they are started with, read, ended and outlived by; and what a failed start leaves."""

import contextlib
import errno
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from iris.worker.guardian import process as module
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.reactor import Reactor
from iris.worker.guardian.running_process import CommandProcess
from iris.worker.isolation.plan import Mount
from iris.worker.isolation.views import ViewFailed
from iris.worker.output.pace import OutputPace
from iris.worker.processes import Exit, ProcessSpec, StartFailed, StartFailure
from iris.worker.strays.orphans import Marks, OrphanReaper, become_subreaper
from support.rigging.processes import is_gone

pytestmark = pytest.mark.process

MOUNTS = (Mount("/bundle", "/bundle", "/layer"),)


class Watched:
    """A command and all that it tells."""

    process: CommandProcess
    exit: Exit | None = None

    def __init__(self, reactor: Reactor) -> None:
        self.stdout = self.stderr = b""
        self._reactor = reactor

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        self.stderr += data if is_stderr else b""
        self.stdout += b"" if is_stderr else data

    def on_exit(self, exit: Exit) -> None:
        self.exit = exit

    def until_exit(self) -> Exit:
        return until(self._reactor, lambda: self.exit)

    def until_output(self, text: bytes) -> None:
        until(self._reactor, lambda: text in self.stdout)

    def kill(self) -> None:
        self.process.kill()
        self.until_exit()


Found = TypeVar("Found")


def until(reactor: Reactor, condition: Callable[[], Found | None]) -> Found:
    end = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < end
        reactor.turn(1.0)
    return found


class Runtime:
    """A runtime with a real reactor and real processes."""

    def __init__(self, cwd: Path, own_cwd: str | None, orphans: Any = None, views: Any = None, **options: Any) -> None:
        self.reactor = Reactor()
        pace = lambda: OutputPace(200_000, 5_000_000)  # noqa: E731
        orphans = orphans or OrphanReaper(Marks(cwd))
        self.runtime = ProcessRuntime(self.reactor, orphans, own_cwd, views=views, pace=pace, **options)
        self._cwd = str(cwd)
        self._count = 0

    def start(self, *argv: str, env: dict[str, str] | None = None, **options: Any) -> Watched:
        self._count += 1
        owner = f"/test/{os.getpid()}/{id(self)}/{self._count}:0"
        given = {"PATH": os.environ["PATH"], "IRIS_ATTEMPT_ID": owner, **(env or {})}
        watched = Watched(self.reactor)
        watched.process = self.runtime.start(ProcessSpec(owner, argv, given, self._cwd, **options), watched)
        return watched

    def run(self, script: str, **options: Any) -> str:
        watched = self.start("sh", "-c", script, **options)
        watched.until_exit()
        return watched.stdout.decode()

    def close(self) -> None:
        self.runtime.close()
        self.reactor.close()


@pytest.fixture(params=["posix_spawn", "subprocess"])
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runtime]:
    """Both ways of starting must behave alike."""
    become_subreaper()
    made = Runtime(tmp_path, os.getcwd() if request.param == "posix_spawn" else None)
    yield made
    made.close()


def descriptors() -> Counter[str]:
    """What this process has open. Some of it may go at any time, as remains of other tests are collected."""
    found: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{descriptor}")] += 1
    return found


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("echo out; echo err >&2; exit 7", (7, 0, "exit code 7")),
        ("echo out; echo err >&2; kill -SEGV $$", (0, signal.SIGSEGV, "killed by SIGSEGV")),
    ],
)
def test_output_and_end(runtime: Runtime, script: str, end: tuple[int, int, str]) -> None:
    watched = runtime.start("sh", "-c", script)
    assert runtime.runtime.live_count == 1
    exit = watched.until_exit()
    assert (exit.code, exit.signal, exit.text()) == end
    assert (watched.stdout, watched.stderr) == (b"out\n", b"err\n")
    assert runtime.runtime.live_count == 0


def test_a_task_starts_as_a_clean_session_leader_without_input_in_its_place(runtime: Runtime, tmp_path: Path) -> None:
    own = os.getcwd()
    program = (
        "import os, signal, sys\n"
        "print(os.getpid() == os.getsid(0) == os.getpgid(0), sys.stdin.read() == '',\n"
        "      signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.pthread_sigmask(0, []),\n"
        "      sorted(map(int, os.listdir('/proc/self/fd')))[:-1], os.get_blocking(1), os.getcwd())"
    )
    for _ in range(2):
        watched = runtime.start(sys.executable, "-c", program)
        watched.until_exit()
        assert watched.stdout.decode() == f"True True True set() [0, 1, 2] True {tmp_path}\n", watched.stderr
        assert os.getcwd() == own


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-command", r"command 'no-such-command' not found; looked in PATH=/bin:/nowhere"),
        ("./broken", "names an interpreter that does not exist"),
    ],
)
def test_a_command_that_cannot_start_is_named(runtime: Runtime, tmp_path: Path, command: str, words: str) -> None:
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    runtime.start("true").until_exit()
    before = descriptors()
    with pytest.raises(StartFailed, match=words):
        runtime.start(command, env={"PATH": "/bin:/nowhere"})
    runtime.start("true").until_exit()
    assert descriptors() - before == Counter()


# Two generations, each in a session of its own; the second is orphaned only when the first is killed.
DAEMONS = "setsid sh -c 'setsid sleep 1000 & echo $!; exec sleep 1000' & echo $!; sleep 0.3"


@pytest.mark.parametrize("script", ["sleep 1000 & echo $!", DAEMONS], ids=["in the group", "daemons"])
def test_what_it_left_running_dies_with_its_leader(runtime: Runtime, script: str) -> None:
    watched = runtime.start("sh", "-c", script)
    assert watched.until_exit().succeeded
    pids = [int(word) for word in watched.stdout.split()]
    assert len(pids) == (2 if script == DAEMONS else 1)
    assert all(map(is_gone, pids))


@pytest.mark.parametrize(
    "daemon",
    ["setsid sleep 1000 & echo $!", "env -i setsid sh -c 'setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!'"],
    ids=["in its name", "without a trace"],
)
def test_a_daemon_lives_as_long_as_its_attempt_whatever_neighbours_do(runtime: Runtime, daemon: str) -> None:
    neighbour = runtime.start("sleep", "1000")
    watched = runtime.start("sh", "-c", f"({daemon}); exec sleep 1000")
    watched.until_output(b"\n")
    pid = int(watched.stdout)
    runtime.start("true").until_exit()
    assert not is_gone(pid)
    watched.kill()
    assert is_gone(pid)
    assert not is_gone(neighbour.process.pid)
    neighbour.kill()


def test_terminate_reaches_the_group_though_it_is_suspended_and_kill_ends_what_ignores_it(runtime: Runtime) -> None:
    watched = runtime.start("sh", "-c", "trap 'echo asked' TERM; echo ready; while true; do sleep 0.05; done")
    watched.until_output(b"ready")
    os.killpg(watched.process.pid, signal.SIGSTOP)
    watched.process.terminate()
    watched.until_output(b"asked")
    assert watched.exit is None
    watched.process.kill()
    assert watched.until_exit().signal == signal.SIGKILL


@pytest.mark.parametrize("ending", ["", "os.kill(os.getpid(), 9)"])
def test_output_beyond_its_pace_is_taken_later_and_whole(runtime: Runtime, ending: str) -> None:
    """Both streams, pauses between, and what the pipes hold when the program ends in one of them."""
    code = f"""
import os
for i in range(0, 100_000, 1000):
    os.write(1, b"".join(b"%09d\\n" % j for j in range(i, i + 1000)))
    os.write(2, b"e" * 1000)
{ending}
"""
    watched = runtime.start(sys.executable, "-c", code)
    exit = watched.until_exit()
    assert (exit.code, exit.signal) == (0, 9 if ending else 0)
    assert watched.stdout.split() == [b"%09d" % i for i in range(100_000)]
    assert watched.stderr == b"e" * 100_000


def test_a_task_is_told_which_pipes_are_its_log(runtime: Runtime) -> None:
    script = 'echo "$IRIS_OUTPUT_PIPES"; stat -Lc %d:%i /proc/$$/fd/1 /proc/$$/fd/2'
    told, *pipes = runtime.run(script, env={"IRIS_JOB_ID": "/u/j"}).split()
    assert told.split(",") == pipes
    assert len(set(pipes)) == 2
    assert runtime.run('echo "$IRIS_OUTPUT_PIPES"') == "\n", "tools have no log"


def test_a_pipe_that_a_process_has_closed_is_not_looked_after_any_more(runtime: Runtime) -> None:
    before = descriptors()
    watched = runtime.start("sh", "-c", "echo words; exec >&- 2>&-; exec sleep 1000")
    until(runtime.reactor, lambda: not watched.process.outputs())
    assert [name for name in descriptors() - before if name.startswith("pipe:")] == []
    watched.kill()
    assert watched.stdout == b"words\n"


class Notes:
    """Marks and views that note what they are asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.view_error: OSError | None = None
        self.clean_after = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *words: self.calls.append((name, *words))

    def expect(self, owner: str) -> int:
        del owner
        return 7

    def sweep(self, live: object) -> bool:
        del live
        self.calls.append(("sweep",))
        self.clean_after -= 1
        return self.clean_after < 0

    def enter(self, mounts: Sequence[Mount]) -> None:
        self.calls.append(("enter", tuple(mounts)))
        if self.view_error is not None:
            raise self.view_error

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        self.calls.append(("outside",))
        yield
        self.calls.append(("inside",))

    @contextlib.contextmanager
    def may_enter_namespaces(self) -> Iterator[None]:
        self.calls.append(("may enter",))
        yield
        self.calls.append(("may not enter",))

    def namespace(self, mounts: Sequence[Mount]) -> int:
        self.calls.append(("namespace", tuple(mounts)))
        return 42

    def drop_unused(self) -> bool:
        """Whether some are left."""
        self.calls.append(("drop unused",))
        return len(self.named("drop unused")) < 2

    def named(self, *names: str) -> list[object]:
        return [call[0] for call in self.calls if call[0] in names]


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def played(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Runtime]:
    """A runtime whose views and marks are played."""
    monkeypatch.chdir("/")
    made = Runtime(tmp_path, **{"own_cwd": "/", "orphans": notes, "views": notes, **getattr(request, "param", {})})
    yield made
    made.close()


def test_what_it_holds_open_is_closed_with_it_and_what_it_inherited_is_not_passed_on(tmp_path: Path) -> None:
    inherited, other = os.pipe()
    os.set_inheritable(inherited, True)
    before = descriptors()
    for own_cwd, is_kept in ((None, True), ("/", False)):
        Runtime(tmp_path, own_cwd).close()
        assert os.get_inheritable(inherited) is is_kept, "subprocess closes it in the child"
    assert descriptors() - before == Counter()
    os.close(inherited)
    os.close(other)


STARTED = ("enter", "leave", "outside", "inside", "put_mark_on")


class TestViews:
    @pytest.mark.parametrize(
        ("mounts", "is_tool", "calls"),
        [
            (MOUNTS, False, [("enter", MOUNTS), ("put_mark_on", 7), ("leave",)]),
            ((), False, [("put_mark_on", 7)]),
            ((), True, [("outside",), ("put_mark_on", 7), ("inside",)]),
            (MOUNTS, True, [("outside",), ("enter", MOUNTS), ("put_mark_on", 7), ("inside",)]),
        ],
    )
    def test_an_attempt_starts_in_its_own_and_a_tool_in_the_workers(
        self, played: Runtime, notes: Notes, mounts: tuple[Mount, ...], is_tool: bool, calls: list[object]
    ) -> None:
        played.run("true", mounts=mounts, dies_with_worker=is_tool)
        assert [call for call in notes.calls if call[0] in STARTED] == calls
        assert notes.calls[-1] == ("forget", 7), "its number is nobody's when all of it is gone"

    def test_the_way_back_is_taken_and_a_refused_view_is_the_hosts_failure(self, played: Runtime, notes: Notes) -> None:
        before = descriptors()
        with pytest.raises(StartFailed, match=r"/.* does not exist"):
            played.start("/no/such", mounts=MOUNTS)
        notes.view_error = ViewFailed(errno.EPERM, "the host cannot mount the task's files")
        with pytest.raises(StartFailed, match=r"^the host cannot mount the task's files$") as failed:
            played.start("true", mounts=MOUNTS)
        assert failed.value.why is StartFailure.HOST
        assert notes.named("enter", "leave", "forget", "add_own") == ["enter", "leave", "forget"] * 2
        assert descriptors() - before == Counter()

    def test_unused_ones_go_in_a_while(self, played: Runtime, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each holds its directories in use; and a worker without tasks is not to wake up for nothing."""
        later, call_later = list[Callable[[], None]](), played.reactor.call_later

        def note(seconds: float, work: Callable[[], None]) -> Any:
            return later.append(work) if seconds == module._VIEWS_IDLE_S else call_later(seconds, work)

        monkeypatch.setattr(played.reactor, "call_later", note)
        for _ in range(2):
            played.run("true", mounts=MOUNTS)
        assert len(later) == 1, "one look at a time"
        later.pop()()
        later.pop()()
        assert (notes.named("drop unused"), later) == (["drop unused"] * 2, []), "none when all are gone"
        assert (played.runtime.namespace(()), later) == (None, [])
        assert (played.runtime.namespace(MOUNTS), len(later)) == (42, 1)


class TestFailures:
    @pytest.mark.parametrize(
        ("call", "code", "left"),
        [
            *(("posix_spawn", code, 0) for code in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)),
            *(("pipe2", errno.EMFILE, left) for left in (0, 1)),
            ("pidfd_open", errno.EMFILE, 0),
        ],
    )
    def test_what_the_host_lacks_is_not_the_commands_fault_and_nothing_is_kept_or_left_running(
        self, played: Runtime, notes: Notes, monkeypatch: pytest.MonkeyPatch, call: str, code: int, left: int
    ) -> None:
        real = getattr(os, call)

        def scarce(*words: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(code, os.strerror(code))
            return real(*words, **options)

        monkeypatch.setattr(os, call, scarce)
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        before, beside = descriptors(), children.read_text()
        with pytest.raises(OSError, match=os.strerror(code)):
            played.start("sleep", "1000")
        assert descriptors() - before == Counter()
        assert (children.read_text(), played.runtime.live_count) == (beside, 0)
        assert call != "posix_spawn" or ("forget", 7) in notes.calls

    @pytest.mark.parametrize("played", [{"sweep_tries": 3}], indirect=True)
    def test_the_undying_are_waited_for(self, played: Runtime, notes: Notes, caplog: pytest.LogCaptureFixture) -> None:
        notes.clean_after = 2
        played.run("true")
        assert (len(notes.named("sweep")), caplog.text) == (3, "")
        notes.clean_after = 1000
        played.run("true")
        assert len(notes.named("sweep")) == 7
        assert "some descendants cannot be killed; reporting the end without them" in caplog.text


def test_after_its_end_a_call_does_nothing(played: Runtime, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may make one, and the number of the process may be another's by then."""
    watched = played.start("echo", "words")
    watched.until_exit()
    process = watched.process
    calls, signals = list(notes.calls), []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda *what: signals.append(what))
    for call in (process.check_exit, process.read_stdout, process.read_stderr, process.terminate, process.kill):
        call()
    assert (process.outputs(), signals, notes.calls) == ([], [], calls)
    assert watched.stdout == b"words\n"


class TestHelpers:
    @pytest.mark.parametrize(
        ("played", "sharer", "helpers"),
        [
            ({"warm": True}, "ann", 1),
            ({"warm": True}, "", 0),
            ({"warm": False}, "ann", 0),
            ({"warm": True, "own_cwd": None}, "ann", 0),
        ],
        indirect=["played"],
    )
    def test_callables_get_one_if_there_is_any(self, played: Runtime, notes: Notes, sharer: str, helpers: int) -> None:
        for _ in range(2):
            played.run("true", sharer=sharer)
        assert len(notes.named("may enter")) == helpers

    def test_a_helper_has_its_socket_and_nothing_else(self, played: Runtime, notes: Notes) -> None:
        played.run("true")  # this process was elsewhere for that
        ours, theirs = socket.socketpair()
        own = "/proc/$$"
        script = f"echo $(pwd) $A $(readlink {own}/fd/0 {own}/fd/1 {own}/fd/2) $(cut -d' ' -f6 {own}/stat) >&3"
        notes.calls.clear()
        pid = played.runtime.spawn_helper("/bin/sh", ("sh", "-c", script), {"A": "1"}, theirs.fileno())
        theirs.close()
        assert notes.calls[1:] == [("may enter",), ("may not enter",), ("add_own", pid)]
        ended: list[bool] = []
        before = descriptors()
        played.runtime.watch_helper(pid, lambda: ended.append(True))
        assert ours.recv(1000).decode().split() == ["/", "1", *["/dev/null"] * 3, str(pid)]
        assert ours.recv(1) == b"", "nothing else has it"
        until(played.reactor, lambda: ended)
        assert notes.calls[-1] == ("remove_own", pid)
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)
        assert descriptors() - before == Counter()
        ours.close()

    def test_a_fork_is_marked_and_ones_own(self, played: Runtime, notes: Notes) -> None:
        played.runtime.adopt(4711)
        assert notes.calls == [("mark", 4711, 0), ("add_own", 4711)]
