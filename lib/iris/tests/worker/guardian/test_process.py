import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.worker.guardian.orphans import Marks, OrphanReaper, become_subreaper, environment_value
from iris.worker.guardian.pace import OutputPace
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.reactor import Reactor
from iris.worker.guardian.running_process import CommandProcess
from iris.worker.processes import Exit, ProcessSpec, StartFailed

pytestmark = pytest.mark.e2e


class Watched:
    """A listener that keeps everything."""

    def __init__(self, reactor: Reactor) -> None:
        self.stdout = b""
        self.stderr = b""
        self.exit: Exit | None = None
        self._reactor = reactor

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        if is_stderr:
            self.stderr += data
        else:
            self.stdout += data

    def on_exit(self, exit: Exit) -> None:
        self.exit = exit

    def until_exit(self) -> Exit:
        self._until(lambda: self.exit is not None)
        assert self.exit is not None
        return self.exit

    def until_output(self, text: bytes) -> None:
        self._until(lambda: text in self.stdout)

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            self._reactor.turn(1.0)


Start = Callable[..., tuple[CommandProcess, Watched]]
WithRuntime = Callable[[Callable[[Start], None]], None]


@pytest.fixture(params=["posix_spawn", "subprocess"])
def with_runtime(request: pytest.FixtureRequest, tmp_path: Path) -> WithRuntime:
    """Runs a test with a `start(*argv)`; both ways of starting must behave alike."""

    def run(test: Callable[[Start], None]) -> None:
        reactor = Reactor()
        cwd = str(tmp_path)
        own_cwd = os.getcwd() if request.param == "posix_spawn" else None
        runtime = ProcessRuntime(
            reactor, OrphanReaper(Marks(tmp_path)), own_cwd, pace=lambda: OutputPace(200_000, 5_000_000)
        )
        count = 0

        def start(*argv: str, path: str = os.environ["PATH"]) -> tuple[CommandProcess, Watched]:
            nonlocal count
            count += 1
            owner = f"/test/{os.getpid()}/{id(reactor)}/{count}:0"
            watched = Watched(reactor)
            env = {"PATH": path, "IRIS_ATTEMPT_ID": owner}
            return runtime.start(ProcessSpec(owner, argv, env, cwd), watched), watched

        try:
            test(start)
        finally:
            runtime.close()
            reactor.close()

    become_subreaper()
    return run


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return True


def test_output_and_exit_code(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        _, watched = start("sh", "-c", "echo out; echo err >&2; exit 7")
        exit = watched.until_exit()
        assert (exit.code, exit.signal, exit.text()) == (7, 0, "exit code 7")
        assert (watched.stdout, watched.stderr) == (b"out\n", b"err\n")

    with_runtime(test)


def test_end_by_signal(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        _, watched = start("sh", "-c", "kill -SEGV $$")
        exit = watched.until_exit()
        assert (exit.code, exit.signal, exit.text()) == (0, signal.SIGSEGV, "killed by SIGSEGV")

    with_runtime(test)


def test_a_task_starts_as_a_clean_session_leader_without_input(with_runtime: WithRuntime) -> None:
    program = (
        "import os, signal, sys\n"
        "print(os.getpid() == os.getsid(0) == os.getpgid(0), sys.stdin.read() == '',\n"
        "      signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.pthread_sigmask(0, []),\n"
        "      sorted(map(int, os.listdir('/proc/self/fd')))[:-1], os.get_blocking(1))"
    )

    def test(start: Start) -> None:
        _, watched = start(sys.executable, "-c", program)
        watched.until_exit()
        assert watched.stdout == b"True True True set() [0, 1, 2] True\n", watched.stderr

    with_runtime(test)


def test_command_not_found_names_it_and_where_it_was_looked_for(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        with pytest.raises(StartFailed, match=r"command 'no-such-command' not found; looked in PATH=/bin:/nowhere"):
            start("no-such-command", path="/bin:/nowhere")
        with pytest.raises(StartFailed, match=r"there is no file .*/no/such/file"):
            start("./no/such/file")
        with pytest.raises(StartFailed, match="/etc/passwd is not an executable file"):
            start("/etc/passwd")

    with_runtime(test)


def test_a_script_whose_interpreter_is_missing(with_runtime: WithRuntime, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)

    def test(start: Start) -> None:
        with pytest.raises(StartFailed, match="names an interpreter that does not exist"):
            start(str(script))

    with_runtime(test)


def test_the_command_runs_in_its_directory_and_this_process_stays_in_its_own(
    with_runtime: WithRuntime, tmp_path: Path
) -> None:
    own = os.getcwd()

    def test(start: Start) -> None:
        _, watched = start("pwd")
        watched.until_exit()
        assert watched.stdout.decode().strip() == str(tmp_path)
        assert os.getcwd() == own

    with_runtime(test)


def test_failed_starts_leak_no_descriptors(with_runtime: WithRuntime, tmp_path: Path) -> None:
    broken = tmp_path / "broken"  # found, but the kernel cannot start it
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)

    def test(start: Start) -> None:
        start("true")[1].until_exit()
        before = open_descriptors()
        for command in ("no-such-command", str(broken)):
            with pytest.raises(StartFailed):
                start(command)
        _, watched = start("true")
        watched.until_exit()
        assert open_descriptors() - before == Counter()

    with_runtime(test)


def open_descriptors() -> Counter[str]:
    """What this process has open. Some of it may go at any time, as remains of other tests are collected."""
    found: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{descriptor}")] += 1
    return found


def test_ten_megabytes_at_once_arrive_whole(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        _, watched = start(sys.executable, "-c", "import os\nfor i in range(160): os.write(1, bytes([i]) * 65536)")
        assert watched.until_exit().succeeded
        assert watched.stdout == b"".join(bytes([i]) * 65536 for i in range(160))

    with_runtime(test)


def test_a_background_child_in_the_group_dies_with_its_leader(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        _, watched = start("sh", "-c", "sleep 1000 & echo $!")
        assert watched.until_exit().succeeded
        assert gone(int(watched.stdout))

    with_runtime(test)


def test_daemons_that_left_the_session_and_hold_the_pipes_die_too(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        # Two generations, each in a session of its own; the second is orphaned only when the first is killed.
        _, watched = start(
            "sh", "-c", "setsid sh -c 'setsid sleep 1000 & echo $!; exec sleep 1000' & echo $!; sleep 0.3"
        )
        assert watched.until_exit().succeeded
        pids = [int(word) for word in watched.stdout.split()]
        assert len(pids) == 2
        assert all(map(gone, pids))

    with_runtime(test)


def test_a_daemon_of_a_live_attempt_is_left_alone_by_anothers_end(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        process, watched = start("sh", "-c", "(setsid sleep 1000 & echo $!); exec sleep 1000")
        watched.until_output(b"\n")
        daemon = int(watched.stdout)
        _, other = start("true")
        other.until_exit()
        assert not gone(daemon)
        process.kill()
        watched.until_exit()
        assert gone(daemon)

    with_runtime(test)


def test_a_daemon_without_a_trace_of_its_attempt_dies_with_it_beside_a_neighbour(with_runtime: WithRuntime) -> None:
    async_daemon = "env -i setsid sh -c 'setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!'"

    def test(start: Start) -> None:
        neighbour, watched_neighbour = start("sleep", "1000")
        process, watched = start("sh", "-c", f"{async_daemon}; exec sleep 1000")
        watched.until_output(b"\n")
        daemon = int(watched.stdout)
        _, other = start("true")
        other.until_exit()
        assert not gone(daemon)
        process.kill()
        watched.until_exit()
        assert gone(daemon)
        assert not gone(neighbour.pid)
        neighbour.kill()
        watched_neighbour.until_exit()

    with_runtime(test)


def test_terminate_reaches_the_group_and_kill_ends_what_ignores_it(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        process, watched = start("sh", "-c", "trap 'echo asked' TERM; echo ready; while true; do sleep 0.05; done")
        watched.until_output(b"ready")
        process.terminate()
        watched.until_output(b"asked")
        assert watched.exit is None
        process.kill()
        assert watched.until_exit().signal == signal.SIGKILL

    with_runtime(test)


def test_terminate_is_heard_by_what_is_suspended(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        process, watched = start(
            "sh", "-c", "trap 'echo asked; exit 3' TERM; echo ready; while true; do sleep 0.05; done"
        )
        watched.until_output(b"ready")
        os.killpg(process.pid, signal.SIGSTOP)
        process.terminate()
        assert watched.until_exit().code == 3

    with_runtime(test)


def test_output_of_a_process_that_goes_on_comes_while_it_runs(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        process, watched = start("sh", "-c", "echo first; exec sleep 1000")
        began = time.monotonic()
        watched.until_output(b"first")
        assert time.monotonic() - began < 5
        assert watched.exit is None
        process.kill()
        watched.until_exit()

    with_runtime(test)


def test_many_short_processes_leave_nothing_behind(with_runtime: WithRuntime) -> None:
    def test(start: Start) -> None:
        start("true")[1].until_exit()
        before = open_descriptors()
        watched = [start("sh", "-c", f"echo {i}; exit {i}")[1] for i in range(40)]
        exits = [one.until_exit() for one in watched]
        assert [exit.code for exit in exits] == list(range(40))
        assert [one.stdout for one in watched] == [b"%d\n" % i for i in range(40)]
        assert open_descriptors() - before == Counter()

    with_runtime(test)


def test_environment_value_of_a_process() -> None:
    assert environment_value(os.getpid(), "NO_SUCH_VARIABLE") is None
    assert environment_value(1 << 22, "PATH") is None


@pytest.mark.parametrize("ending", ["", "; import os; os.kill(os.getpid(), 9)"])
def test_output_beyond_its_pace_is_taken_later_and_whole(with_runtime: WithRuntime, ending: str) -> None:
    """Both streams, pauses between, and what the pipes hold when the program ends in one of them."""
    code = f"""
import os
for i in range(0, 100_000, 1000):
    os.write(1, b"".join(b"%09d\\n" % j for j in range(i, i + 1000)))
    os.write(2, b"e" * 1000)
{ending.lstrip("; ")}
"""

    def test(start: Start) -> None:
        _, watched = start(sys.executable, "-c", code)
        exit = watched.until_exit()
        assert (exit.signal if ending else exit.code) == (9 if ending else 0)
        assert watched.stdout.split() == [b"%09d" % i for i in range(100_000)]
        assert watched.stderr == b"e" * 100_000

    with_runtime(test)
