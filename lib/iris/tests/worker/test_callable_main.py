import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import cloudpickle
import pytest

from iris.client.task_exceptions import load_exception
from iris.domain.states import TaskState
from iris.testing.worker_fixtures import FakeController, InProcessWorker, run_command
from iris.worker import callable_main
from iris.worker.guardian.orphans import become_subreaper
from rigging.results import unpack_result

pytestmark = pytest.mark.e2e

Play = Callable[[Callable[[FakeController, InProcessWorker], Awaitable[None]]], None]
JOB = "/user/job/0:0"


def call(controller: FakeController, function: Callable[..., object], *args: object, bundle: str = "") -> None:
    """Start a one-task job that calls `function`, which the task cannot import."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        payload = controller.add_blob(cloudpickle.dumps((function, args, {})))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    controller.send(run=[run_command(payload=payload, bundle=bundle)])


def fail(word: str) -> None:
    raise ValueError(f"bad {word}")


def leave(code: int | str) -> None:
    sys.exit(code)


def test_words_given_to_sys_exit_are_the_error(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, leave, "no data in the bucket")
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_code) == (TaskState.FAILED, 1)
        assert end.error == "sys.exit: no data in the bucket"
        assert controller.output(JOB, stderr=True) == b"no data in the bucket\n"

    play(scenario)


def test_a_function_runs_with_its_arguments(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, print, "called", 7)
        (end,) = await controller.until_ended(JOB)
        assert (end.state, controller.output(JOB)) == (TaskState.SUCCEEDED, b"called 7\n")

    play(scenario)


def test_an_exception_is_the_error_and_its_traceback_the_output(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, fail, "input")
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_code) == (TaskState.FAILED, 1)
        first, *frames = end.error.split("\n")
        assert first == "ValueError: bad input"
        assert frames[-2].endswith("in fail")
        assert frames[-1] == '    raise ValueError(f"bad {word}")'
        assert b"Traceback (most recent call last)" in controller.output(JOB, stderr=True)

    play(scenario)


def test_the_exception_itself_goes_along_where_it_can(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, fail, "input")
        (end,) = await controller.until_ended(JOB)
        again = load_exception(end.exception)
        assert (type(again), str(again)) == (ValueError, "bad input")

    play(scenario)


@pytest.mark.parametrize(("code", "state"), [(0, TaskState.SUCCEEDED), (5, TaskState.FAILED)])
def test_system_exit_is_honoured(play: Play, code: int, state: TaskState) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, leave, code)
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_code) == (state, code)

    play(scenario)


def test_it_runs_in_an_environment_without_cloudpickle(play: Play, workspace_files: dict[str, str | bytes]) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        def use_third_party() -> None:
            import importlib.util

            import third

            print(importlib.util.find_spec("grpc"), third.VALUE)

        call(controller, use_third_party, bundle=controller.add_bundle(workspace_files))
        (end,) = await controller.until_ended(JOB, timeout_s=60)
        assert (end.state, controller.output(JOB)) == (TaskState.SUCCEEDED, b"None 3\n"), end.error

    play(scenario)


def test_a_payload_that_cannot_be_loaded_says_so(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command(payload=controller.add_blob(b"no pickle"))])
        (end,) = await controller.until_ended(JOB)
        assert end.exit_code == 1
        assert end.error.startswith(("UnpicklingError", "_pickle.UnpicklingError"))

    play(scenario)


FORKS = """
import os, subprocess, sys, threading
from iris.worker import callable_main
from iris.worker.guardian.orphans import become_subreaper
from rigging.results import unpack_result

become_subreaper()
top = os.getpid()
answer, answer_write = os.pipe()
seen, seen_write = os.pipe()
go, go_write = os.pipe()
if (helper := os.fork()) == 0:
    fork = callable_main._sibling_fork() if sys.argv[1] == "sibling" else callable_main._fork_twice
    pid = fork()
    if pid == 0:
        lock, results = threading.RLock(), []
        with lock:
            thread = threading.Thread(target=lambda: results.append(lock.acquire(blocking=False)))
            thread.start()
            thread.join()
        own = threading.get_native_id() == os.getpid()
        child = subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip()
        os.read(go, 1)  # the orphan of two forks has its parent when the process between them was reaped
        os.write(seen_write, repr((os.getppid() == top, own, results, child)).encode())
        os._exit(9)
    os.write(answer_write, str(pid).encode())
    os._exit(0)
os.waitpid(helper, 0)
os.write(go_write, b"!")
pid, status = os.wait()
print(int(os.read(answer, 100)) == pid, os.waitstatus_to_exitcode(status), os.read(seen, 1000).decode())
"""


@pytest.mark.parametrize("way", ["sibling", "orphan"])
def test_forks_of_the_warm_interpreter_are_whole_processes_and_its_parents_children(way: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS, way], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True 9 (True, True, [False], 'child')\n", "")


SERVE = (callable_main.__file__, "--serve")


class Helper:
    """A warm interpreter, and this process in the place of the guardian that asks it."""

    def __init__(self, place: Path, program: Sequence[str] = SERVE, **variables: str) -> None:
        self.place = place
        self.connection, theirs = socket.socketpair()
        self.connection.settimeout(60)
        command = [sys.executable, "-P", *program, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, **variables}, cwd="/")
        theirs.close()
        assert self.connection.recv(10) == b"R"

    def fork(self, code: str, word: bytes = b"g", namespace: tuple[int, ...] = (), **variables: str) -> tuple[int, str]:
        """How a fork ended that ran this code, and what it wrote."""
        payload = self.place / "payload"
        payload.write_bytes(pickle.dumps((exec, (code, {}), {})))
        words = [str(payload), str(self.place), *(f"{name}={value}" for name, value in variables.items())]
        body = b"\0".join(map(os.fsencode, words))
        gate, gate_write = os.pipe()
        with open(self.place / "output", "wb") as output:
            descriptors = [gate, output.fileno(), output.fileno(), *namespace]
            socket.send_fds(self.connection, [struct.pack("!I", len(body))], descriptors)
        os.close(gate)
        self.connection.sendall(body)
        (pid,) = struct.unpack("!i", self.connection.recv(4, socket.MSG_WAITALL))
        assert (self.place / "output").read_bytes() == b"", "it waits for the word"
        os.write(gate_write, word)
        os.close(gate_write)
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:  # where its parent is somebody else
            status = -1
        return status, (self.place / "output").read_text()

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Helper]:
    become_subreaper()
    made = Helper(tmp_path, A="0")
    yield made
    made.connection.close()
    assert made.process.wait(60) == 0, "it ends with whoever asks"


SAYS = """
import os, sys
print(os.getcwd(), os.environ["A"], os.environ["B"], os.getsid(0) == os.getpid(), sys.argv[1:])
paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
print([os.readlink(path) for path in paths if os.path.islink(path)], flush=True)
print("words", file=sys.stderr)
sys.exit(3)
"""


def test_a_warm_interpreter_forks_for_each_call_and_keeps_nothing_of_it(helper: Helper, tmp_path: Path) -> None:
    before = helper.open_files()
    for number in ("1", "2"):
        status, output = helper.fork(SAYS, A=number, B="b=c")
        assert status == 3
        first, second, words = output.splitlines()
        assert first == f"{tmp_path} {number} b=c True ['{tmp_path}/payload']"
        assert "socket" not in second, "the next requests are not for it"
        assert "pipe" not in second
        assert words == "words"
    assert helper.open_files() == before
    assert helper.fork("print('no error')") == (0, "no error\n")
    assert helper.fork("1 / 0")[0] == 1


def test_a_fork_that_is_not_told_to_begin_runs_nothing(helper: Helper) -> None:
    assert helper.fork("print('begun')", word=b"") == (75, "")
    assert helper.fork("print('next')") == (0, "next\n"), "the helper goes on"


REFUSED = """
import sys
from iris.worker import callable_main

def sibling_fork():
    tries = iter([True])
    def fork():
        next(tries)  # once is enough to know it
        raise OSError("clone3 was refused")
    return fork

callable_main._sibling_fork = sibling_fork
callable_main.main_forked(callable_main.serve(int(sys.argv[1])))
"""


def test_where_the_kernel_refuses_siblings_orphans_are_forked_from_then_on(tmp_path: Path) -> None:
    become_subreaper()
    helper = Helper(tmp_path, ("-c", REFUSED))
    try:
        assert [helper.fork(f"print({number})") for number in range(3)] == [(0, "0\n"), (0, "1\n"), (0, "2\n")]
    finally:
        helper.connection.close()
        assert helper.process.wait(60) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a namespace")
def test_a_fork_enters_the_view_of_its_attempt_or_does_not_run(helper: Helper, tmp_path: Path) -> None:
    hold = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert hold.stdout is not None
    hold.stdout.readline()
    code = "import os; print(os.readlink('/proc/self/ns/mnt'))"
    own = os.readlink("/proc/self/ns/mnt")
    view = os.open(f"/proc/{hold.pid}/ns/mnt", os.O_RDONLY)
    assert helper.fork(code, namespace=(view,)) == (0, f"{os.readlink(f'/proc/{hold.pid}/ns/mnt')}\n")
    assert helper.fork(code) == (0, f"{own}\n")
    with open("/dev/null", "rb") as other:
        assert helper.fork(code, namespace=(other.fileno(),)) == (75, "")
    os.close(view)
    hold.communicate()


def give(value: object) -> object:
    return value


class Refuses:
    """A value that is not pickled."""

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("stays\nhere")


@pytest.mark.parametrize("size", [10, 5000, 3 << 20])
def test_what_it_returns_is_told_with_its_end(play: Play, size: int) -> None:
    """Of more than a few thousand bytes the digest of a blob that is there by then."""

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, give, b"x" * size)
        (end,) = await controller.until_ended(JOB, timeout_s=60)
        assert end.state == TaskState.SUCCEEDED
        packed = controller.blobs[end.result_digest] if end.result_digest else end.result
        assert unpack_result(packed, "it") == b"x" * size
        assert bool(end.result_digest) == (size >= 5000)

    play(scenario)


def test_none_is_told_as_nothing_and_what_cannot_be_sent_as_a_reason(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, give, None)
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.result, end.tells_result) == (TaskState.SUCCEEDED, b"", True)

    play(scenario)
    packed = callable_main.pack_result(Refuses())
    assert packed == b"! a value of type Refuses cannot be sent: TypeError: stays here\n"


def test_packed_values_are_those_of_rigging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's environment may be without it, so the script has its own."""
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path))
    for value in ({"a": [1, (2,)]}, b"x" * (20 << 20)):
        assert unpack_result(callable_main.pack_result(value), "it") == value
    assert len(list(tmp_path.rglob("*.pickle"))) == 1, "what is large is in the temporary prefix"
