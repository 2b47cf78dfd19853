"""What is done around a start, and undone when it fails: views of files, marks, pipes; views and marks are played."""

import contextlib
import errno
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from iris.worker.guardian import process as module
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.reactor import Reactor
from iris.worker.isolation.plan import Mount
from iris.worker.isolation.views import ViewFailed
from iris.worker.processes import Exit, ProcessSpec, StartFailed, StartFailure

MOUNTS = (Mount("/bundle", "/bundle", "/layer"),)


class Seen:
    def __init__(self) -> None:
        self.output = b""
        self.exit: Exit | None = None

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        self.output += data

    def on_exit(self, exit: Exit) -> None:
        self.exit = exit


class Bench:
    """A runtime whose views and marks note what they are asked for; it has a real reactor and real processes."""

    def __init__(self, own_cwd: str | None = "/", warm: bool = False, **limits: int) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.view_error: OSError | None = None
        self.clean_after = 0
        self.reactor = Reactor()
        self.runtime = ProcessRuntime(self.reactor, self, own_cwd, warm, views=self, **limits)  # type: ignore[arg-type]

    # --- of the marks ---

    def expect(self, owner: str) -> int:
        self.calls.append(("expect", owner))
        return 7

    def put_mark_on(self, number: int) -> None:
        self.calls.append(("mark on", number))

    def take_mark_off(self) -> None:
        self.calls.append(("mark off",))

    def mark(self, pid: int, number: int) -> None:
        self.calls.append(("mark", pid, number))

    def add_own(self, pid: int) -> None:
        self.calls.append(("own", pid))

    def remove_own(self, pid: int) -> None:
        self.calls.append(("not own", pid))

    def forget(self, number: int) -> None:
        self.calls.append(("forget", number))

    def sweep(self, live: object) -> bool:
        self.calls.append(("sweep",))
        self.clean_after -= 1
        return self.clean_after < 0

    def close(self) -> None:
        self.calls.append(("close",))

    # --- of the views ---

    def enter(self, mounts: Sequence[Mount]) -> None:
        self.calls.append(("enter", tuple(mounts)))
        if self.view_error is not None:
            raise self.view_error

    def leave(self) -> None:
        self.calls.append(("leave",))

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

    # --- of the test ---

    def start(self, script: str, cwd: Path, mounts: tuple[Mount, ...] = (), **options: Any) -> Seen:
        seen = Seen()
        env = {"PATH": os.environ["PATH"], **options.pop("env", {})}
        argv = options.pop("argv", ("/bin/sh", "-c", script))
        self.runtime.start(ProcessSpec("a", argv, env, str(cwd), mounts=mounts, **options), seen)
        return seen

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            self.reactor.turn(1.0)

    def run(self, script: str, cwd: Path, mounts: tuple[Mount, ...] = (), **options: Any) -> str:
        seen = self.start(script, cwd, mounts, **options)
        self.until(lambda: seen.exit is not None)
        return seen.output.decode()

    def named(self, *names: str) -> list[str]:
        return [str(call[0]) for call in self.calls if call[0] in names]


def descriptors() -> Counter[str]:
    """What this process has open. Some of it may go at any time, as remains of other tests are collected."""
    found: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{descriptor}")] += 1
    return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Bench]:
    monkeypatch.chdir("/")
    made = Bench(**getattr(request, "param", {}))
    yield made
    made.runtime.close()
    made.reactor.close()


VIEWS = ("enter", "leave", "outside", "inside")


def test_what_it_holds_open_is_closed_with_it() -> None:
    before = descriptors()
    bench = Bench()
    bench.runtime.close()
    bench.reactor.close()
    assert descriptors() - before == Counter()


def test_a_pipe_that_a_process_has_closed_is_not_looked_after_any_more(bench: Bench, tmp_path: Path) -> None:
    before, seen = descriptors(), Seen()
    script = "echo words; exec >&- 2>&-; exec sleep 1000"
    process = bench.runtime.start(ProcessSpec("a", ("/bin/sh", "-c", script), {}, str(tmp_path)), seen)
    bench.until(lambda: not process.outputs())
    assert [name for name in descriptors() - before if name.startswith("pipe:")] == []
    process.kill()
    bench.until(lambda: seen.exit is not None)
    assert seen.output == b"words\n"


class TestViews:
    def test_an_attempt_starts_in_its_own(self, bench: Bench, tmp_path: Path) -> None:
        bench.run("true", tmp_path, MOUNTS)
        started = [call for call in bench.calls if call[0] in (*VIEWS, "mark on", "own")]
        assert [call[0] for call in started] == ["enter", "mark on", "leave", "own"]
        assert started[0] == ("enter", MOUNTS)

    def test_one_without_mounts_costs_none(self, bench: Bench, tmp_path: Path) -> None:
        bench.run("true", tmp_path)
        assert bench.named(*VIEWS) == []

    def test_a_tool_of_the_worker_sees_what_the_worker_sees(self, bench: Bench, tmp_path: Path) -> None:
        bench.run("true", tmp_path, MOUNTS, dies_with_worker=True)
        assert bench.named(*VIEWS, "mark on") == ["outside", "mark on", "inside"]

    def test_the_way_back_is_taken_when_the_start_fails(self, bench: Bench, tmp_path: Path) -> None:
        with pytest.raises(StartFailed, match="there is no file"):
            bench.start("", tmp_path, MOUNTS, argv=("/no/such",))
        assert bench.named(*VIEWS) == ["enter", "leave"]

    def test_a_refused_view_is_the_hosts_failure(self, bench: Bench, tmp_path: Path) -> None:
        bench.view_error = ViewFailed(errno.EPERM, "the host cannot show the task its files")
        before = descriptors()
        with pytest.raises(StartFailed, match="the host cannot show the task its files") as failed:
            bench.start("true", tmp_path, MOUNTS)
        assert (str(failed.value), failed.value.why) == (bench.view_error.strerror, StartFailure.HOST)
        assert bench.named("leave", "forget", "own") == ["leave", "forget"]
        assert descriptors() - before == Counter()

    def test_what_runs_is_counted_until_it_has_ended(self, bench: Bench, tmp_path: Path) -> None:
        seen = bench.start("true", tmp_path)
        assert bench.runtime.live_count == 1
        bench.until(lambda: seen.exit is not None)
        assert bench.runtime.live_count == 0

    def test_only_what_has_mounts_needs_a_namespace(self, bench: Bench) -> None:
        assert bench.runtime.namespace(()) is None
        assert bench.runtime.namespace(MOUNTS) == 42

    def test_unused_ones_are_let_go_after_a_while_until_none_is_left(
        self, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each holds its directories in use; and a worker without tasks is not to wake up for nothing."""
        later, call_later = list[Callable[[], None]](), bench.reactor.call_later

        def note(seconds: float, work: Callable[[], None]) -> Any:
            return later.append(work) if seconds == module._VIEWS_IDLE_S else call_later(seconds, work)

        monkeypatch.setattr(bench.reactor, "call_later", note)
        for _ in range(2):
            bench.run("true", tmp_path, MOUNTS)
        assert len(later) == 1, "one look at a time"
        later.pop()()
        later.pop()()
        assert (bench.named("drop unused"), later) == (["drop unused"] * 2, []), "none when all are gone"
        bench.runtime.namespace(MOUNTS)
        assert len(later) == 1


class TestFailures:
    @pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE])
    def test_what_the_host_lacks_is_not_the_commands_fault(
        self, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        def refuse(*_: object, **__: object) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "posix_spawn", refuse)
        before = descriptors()
        with pytest.raises(OSError, match=os.strerror(code)):
            bench.start("true", tmp_path)
        assert descriptors() - before == Counter()
        assert ("forget", 7) in bench.calls
        assert bench.runtime.live_count == 0

    @pytest.mark.parametrize("free", [0, 1])
    def test_without_descriptors_for_its_pipes_nothing_starts_and_none_is_kept(
        self, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
    ) -> None:
        pipe, left = os.pipe2, free

        def scarce(flags: int) -> tuple[int, int]:
            nonlocal left
            if not left:
                raise OSError(errno.EMFILE, "Too many open files")
            left -= 1
            return pipe(flags)

        monkeypatch.setattr(os, "pipe2", scarce)
        before = descriptors()
        with pytest.raises(OSError, match="Too many open files"):
            bench.start("true", tmp_path)
        assert descriptors() - before == Counter()

    def test_one_that_cannot_be_watched_is_ended(
        self, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spawned: list[int] = []
        spawn = os.posix_spawn

        def note(*words: Any, **options: Any) -> int:
            spawned.append(spawn(*words, **options))
            return spawned[-1]

        def refuse(pid: int) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(os, "posix_spawn", note)
        monkeypatch.setattr(os, "pidfd_open", refuse)
        before = descriptors()
        with pytest.raises(OSError, match="Too many open files"):
            bench.start("exec sleep 1000", tmp_path)
        assert descriptors() - before == Counter()
        with pytest.raises(ProcessLookupError):
            os.kill(spawned[0], 0)  # it is reaped, too
        assert bench.runtime.live_count == 0

    @pytest.mark.parametrize("bench", [{"sweep_tries": 3}], indirect=True)
    def test_descendants_that_do_not_die_are_waited_for_so_long_and_no_longer(
        self, bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.clean_after = 2
        bench.run("true", tmp_path)
        assert bench.named("sweep") == ["sweep"] * 3
        assert caplog.text == ""
        bench.clean_after = 1000
        bench.run("true", tmp_path)
        assert bench.named("sweep") == ["sweep"] * 7
        assert "a: some descendants do not die; reporting the end without them" in caplog.text


def test_once_it_has_ended_a_call_without_cause_does_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop may make one, and the number of the process may be another's by then."""
    seen = Seen()
    process = bench.runtime.start(ProcessSpec("a", ("/bin/sh", "-c", "echo words"), {}, str(tmp_path)), seen)
    bench.until(lambda: seen.exit is not None)
    calls, signals = list(bench.calls), []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda *what: signals.append(what))
    process.check_exit()
    process.read_stdout()
    process.read_stderr()
    process.terminate()
    process.kill()
    assert (process.outputs(), signals, bench.calls) == ([], [], calls)
    assert seen.output == b"words\n"


class TestWhatItIsStartedWith:
    @pytest.mark.parametrize("own_cwd", ["/", None])
    def test_a_task_is_told_which_pipes_are_its_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cwd: str | None
    ) -> None:
        monkeypatch.chdir("/")
        bench = Bench(own_cwd)
        script = 'echo "$IRIS_OUTPUT_PIPES"; stat -Lc %d:%i /proc/$$/fd/1 /proc/$$/fd/2'
        told, *pipes = bench.run(script, tmp_path, env={"IRIS_JOB_ID": "/u/j"}).split()
        assert told.split(",") == pipes
        assert len(set(pipes)) == 2
        assert bench.run('echo "$IRIS_OUTPUT_PIPES"', tmp_path) == "\n", "tools have no log"
        bench.runtime.close()
        bench.reactor.close()

    def test_after_each_start_this_process_is_at_home_again(self, bench: Bench, tmp_path: Path) -> None:
        for _ in range(2):
            assert bench.run("pwd", tmp_path) == f"{tmp_path}\n"
            assert os.getcwd() == "/"

    def test_it_has_a_mark_and_what_is_started_otherwise_has_none(self, bench: Bench, tmp_path: Path) -> None:
        bench.run("true", tmp_path)
        assert bench.named("expect", "mark on", "mark off")[:3] == ["expect", "mark on", "mark off"]
        assert ("mark on", 7) in bench.calls
        assert bench.calls[-1] == ("forget", 7), "its number is nobody's when all of it is gone"

    def test_what_this_process_inherited_is_not_passed_on(self, tmp_path: Path) -> None:
        read, write = os.pipe()
        os.set_inheritable(read, True)
        bench = Bench(None)
        assert os.get_inheritable(read), "subprocess closes it in the child"
        bench.runtime.close()
        bench = Bench("/")
        assert not os.get_inheritable(read)
        bench.runtime.close()
        for descriptor in (read, write):
            os.close(descriptor)


class TestHelpers:
    @pytest.mark.parametrize(
        ("own_cwd", "warm", "sharer", "helpers"),
        [("/", True, "ann", 1), ("/", True, "", 0), ("/", False, "ann", 0), (None, True, "ann", 0)],
    )
    def test_callables_get_one_where_the_runtime_keeps_them(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        own_cwd: str | None,
        warm: bool,
        sharer: str,
        helpers: int,
    ) -> None:
        monkeypatch.chdir("/")
        bench = Bench(own_cwd, warm)
        for _ in range(2):
            bench.run("true", tmp_path, sharer=sharer)
        assert len(bench.named("may enter")) == helpers
        bench.runtime.close()
        bench.reactor.close()

    def test_a_helper_has_its_socket_and_nothing_else(self, bench: Bench, tmp_path: Path) -> None:
        bench.run("true", tmp_path)  # this process was elsewhere for that
        ours, theirs = socket.socketpair()
        own = "/proc/$$"
        script = f"echo $(pwd) $A $(readlink {own}/fd/0 {own}/fd/1 {own}/fd/2) $(cut -d' ' -f6 {own}/stat) >&3"
        bench.calls.clear()
        pid = bench.runtime.spawn_helper("/bin/sh", ("sh", "-c", script), {"A": "1"}, theirs.fileno())
        theirs.close()
        assert bench.named("may enter", "own", "may not enter", "mark on") == ["may enter", "may not enter", "own"]
        ended: list[bool] = []
        before = descriptors()
        bench.runtime.watch_helper(pid, lambda: ended.append(True))
        assert ours.recv(1000).decode().split() == ["/", "1", *["/dev/null"] * 3, str(pid)]
        assert ours.recv(1) == b"", "nothing else has it"
        bench.until(lambda: ended)
        assert ended == [True]
        assert ("not own", pid) in bench.calls
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)
        assert descriptors() - before == Counter()
        ours.close()

    def test_a_fork_is_marked_and_ones_own(self, bench: Bench) -> None:
        bench.runtime.adopt(4711)
        assert bench.calls == [("mark", 4711, 0), ("own", 4711)]
