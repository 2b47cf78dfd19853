import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from iris.client.task_ends import load_exception
from iris.cluster.types import Entrypoint
from iris.domain.states import TaskState
from iris.worker import callable_main
from iris.worker.callable_main import describe, finish, main, write_error, wrong_python
from iris.worker.reports.task_file import read_error_file
from iris.worker.strays.orphans import become_subreaper
from rigging.errors import InvalidRequest
from rigging.results import unpack_result
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command

OWN = ".".join(map(str, sys.version_info[:2]))


def test_what_this_python_pickled_it_can_read_and_what_nobody_says_it_tries() -> None:
    assert wrong_python("") == wrong_python(OWN) == ""
    assert wrong_python("2.7") == (
        f"the callable was pickled by Python 2.7, but its task runs Python {OWN} ({sys.executable})"
    )


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("bad input")


def test_an_error_is_told_by_its_type_its_text_and_the_innermost_frames_with_the_source_that_is_here() -> None:
    with pytest.raises(ValueError, match="bad input") as raised:
        deep(5)
    first, *frames = describe(raised.value).split("\n")
    assert first == "ValueError: bad input"
    assert len(frames) == 6
    assert all(frame.startswith(f'  File "{__file__}", line ') and frame.endswith(", in deep") for frame in frames[::2])
    assert frames[1::2] == ["    deep(levels - 1)", "    deep(levels - 1)", '    raise ValueError("bad input")']
    scope: dict[str, object] = {}
    exec(compile("def fail():\n    raise ValueError('bad')", "/elsewhere/shards.py", "exec"), scope)
    fail = scope["fail"]
    assert callable(fail)
    with pytest.raises(ValueError, match="bad") as raised:
        fail()
    assert describe(raised.value).endswith('\n  File "/elsewhere/shards.py", line 2, in fail')


def test_words_are_left_for_the_worker_and_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IRIS_ERROR_FILE", str(tmp_path / "error"))
    write_error("é" * 10_000)
    assert (tmp_path / "error").read_text(encoding="utf-8") == "é" * 8192
    monkeypatch.setenv("IRIS_ERROR_FILE", str(tmp_path / "none" / "error"))
    write_error("text")
    assert f"cannot write {tmp_path / 'none' / 'error'}: " in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("IRIS_ERROR_FILE")
    write_error("text")
    assert os.listdir(tmp_path) == ["error"]
    assert capsys.readouterr() == ("", "")


class Refuses:
    """A value that is not pickled."""

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("stays\nhere")


def test_packed_values_are_those_of_rigging_or_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's environment may be without it, so the script has its own."""
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path))
    for value in ({"a": [1, (2,)]}, b"x" * (20 << 20)):
        assert unpack_result(callable_main.pack_result(value), "it") == value
    assert len(list(tmp_path.rglob("*.pickle"))) == 1, "what is large is in the temporary prefix"
    assert callable_main.pack_result(Refuses()) == b"! a value of type Refuses cannot be sent: TypeError: stays here\n"


seen: list[Any] = []


def note(*args: Any, **kwargs: Any) -> None:
    seen.append((args, kwargs, sys.path[0], "IRIS_CLOUDPICKLE" in os.environ, "IRIS_PICKLED_BY" in os.environ))


class TestMain:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen.clear()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setenv("IRIS_ERROR_FILE", str(tmp_path / "error"))
        monkeypatch.setenv("IRIS_CLOUDPICKLE", "")
        monkeypatch.setenv("IRIS_PICKLED_BY", OWN)

    def payload(self, tmp_path: Path, function: Any, *args: Any, **kwargs: Any) -> str:
        (tmp_path / "payload").write_bytes(pickle.dumps((function, args, kwargs)))
        return str(tmp_path / "payload")

    @pytest.mark.parametrize(
        ("code", "ends", "words"),
        [
            (256, 1, None), (512, 1, None), (3, None, None), (0, None, None), (None, None, None),
            ("why", None, "sys.exit: why"),
        ],
    )  # fmt: skip
    def test_a_code_of_which_the_system_would_keep_a_zero_is_a_failure_and_words_are_the_error(
        self, tmp_path: Path, code: Any, ends: int | None, words: str | None
    ) -> None:
        payload = self.payload(tmp_path, sys.exit, code)
        if ends is not None:
            assert main(payload) == ends
        else:
            with pytest.raises(SystemExit) as left:
                main(payload)
            assert left.value.code == code
        error, result = tmp_path / "error", tmp_path / "error.value"
        assert (error.read_text() if error.exists() else None) == words
        assert result.exists() == (not code), "one that succeeds so has no value, and says why"
        assert code or result.read_text() == "! it ended by sys.exit(0), before its function returned\n"

    def test_its_directory_is_first_its_words_hidden(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        called = pickle.dumps((print, (1,), {}))
        monkeypatch.setattr("builtins.print", note)
        (tmp_path / "payload").write_bytes(called)
        assert main(str(tmp_path / "payload")) == 0
        assert seen == [((1,), {}, str(tmp_path), False, False)]
        assert sorted(os.listdir(tmp_path)) == ["error.value", "payload"]
        assert (tmp_path / "error.value").read_bytes() == b"", "None is told as nothing, but it has returned"

    def test_what_it_raises_is_its_error(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(self.payload(tmp_path, int, "x")) == 1
        words = read_error_file(str(tmp_path / "error"))
        assert words.text.startswith("ValueError: invalid literal for int()")
        assert isinstance(load_exception(words.exception), ValueError)
        assert "Traceback (most recent call last)" in capsys.readouterr().err

    def test_without_cloudpickle_its_text_is_told_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        payload = self.payload(tmp_path, int, "x\0y")
        monkeypatch.setitem(sys.modules, "cloudpickle", None)
        monkeypatch.setattr(callable_main, "ensure_cloudpickle", lambda fallback: None)
        assert main(payload) == 1
        assert read_error_file(str(tmp_path / "error")).exception == b""

    def test_what_another_python_pickled_is_not_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("IRIS_PICKLED_BY", "2.7")
        assert main(str(tmp_path / "none")) == 1
        assert (tmp_path / "error").read_text().startswith("the callable was pickled by Python 2.7")
        assert "pickled by Python 2.7" in capsys.readouterr().err


def test_what_an_async_function_raises_is_raised_and_generator_functions_are_refused() -> None:
    async def load() -> None:
        raise LookupError("no shards")

    with pytest.raises(LookupError, match="no shards"):
        finish(load, load())

    def shards() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidRequest, match=r"shards is a generator function: calling it runs none of its code"):
        Entrypoint.from_callable(shards)


def script(payload: Path, *options: str, **variables: str) -> tuple[int, str, str]:
    words = [sys.executable, "-P", *options, callable_main.__file__, str(payload)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=variables)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.process
def test_the_script_needs_the_standard_library_alone_and_brings_its_cloudpickle(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(pickle.dumps((print, ("called",), {})))
    assert script(tmp_path / "payload", "-I", "-S") == (0, "called\n", "")
    (tmp_path / "fallback").mkdir()
    (tmp_path / "fallback" / "__init__.py").write_text("from . import part\nORIGIN = 'fallback'\n")
    (tmp_path / "fallback" / "part.py").write_text("")
    code = "print(getattr(__import__('cloudpickle'), 'ORIGIN', 'own'))"
    (tmp_path / "payload").write_bytes(pickle.dumps((exec, (code,), {})))
    fallback = {"IRIS_CLOUDPICKLE": str(tmp_path / "fallback")}
    assert script(tmp_path / "payload", "-S", **fallback) == (0, "fallback\n", "")
    assert script(tmp_path / "payload", **fallback) == (0, "own\n", "")
    failed, _, error = script(tmp_path / "payload", "-S")
    assert (failed, "No module named 'cloudpickle'" in error) == (1, True)
    assert script(tmp_path / "payload", "-S", IRIS_CLOUDPICKLE=str(tmp_path / "none"))[0] == 1


CHILD_FORKS = """
import os
child = os.fork()
if child == 0:
    raise LookupError("no shards in the child")
os._exit(3 + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.process
def test_children_that_a_function_forks_leave_no_words_for_the_worker_and_end_as_others_do(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(pickle.dumps((exec, (CHILD_FORKS, {}), {})))
    code, _, error = script(tmp_path / "payload", IRIS_ERROR_FILE=str(tmp_path / "error"))
    assert (code, "no shards in the child" in error) == (4, True)
    assert not (tmp_path / "error").exists()
    (tmp_path / "forks.py").write_text(ASYNC_FORKS)
    (tmp_path / "payload").write_bytes(b"(cforks\nrun\n)}t.")  # forks.run, without arguments
    variables = {"PYTHONPATH": str(tmp_path), "IRIS_ERROR_FILE": str(tmp_path / "error")}
    code, output, error = script(tmp_path / "payload", **variables)
    assert (code, output) == (7, "[0, 1, 5, 1]\n")
    assert error.count("Traceback") == 1, "of the one that raised; the loop, which they share, is not touched"
    assert "no shards in the child" in error
    assert "gone\n" in error
    assert not (tmp_path / "error").exists()


ASYNC_FORKS = """
import os
async def run():
    codes = []
    for end in (None, LookupError("no shards in the child"), SystemExit(5), SystemExit("gone")):
        if (child := os.fork()) == 0:
            if end is not None:
                raise end
            return
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(codes)
    raise SystemExit(7)
"""


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
import atexit, os, subprocess, sys, threading
atexit.register(print, "exit handler", flush=True)
threading.Thread(target=lambda: (threading.main_thread().join(), print("late thread", flush=True))).start()
lock, results = threading.RLock(), []
with lock:
    thread = threading.Thread(target=lambda: results.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
print(results, threading.get_native_id() == os.getpid(), flush=True)  # it is a whole process
subprocess.run(["echo", "child"])
print(os.getcwd(), os.environ["A"], os.environ["B"], os.getsid(0) == os.getpid(), sys.argv[1:])
paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
print([os.readlink(path) for path in paths if os.path.islink(path)], flush=True)
print("words", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.process
def test_a_warm_interpreter_forks_for_each_call_and_keeps_nothing(helper: Helper, tmp_path: Path) -> None:
    before = helper.open_files()
    for number in ("1", "2"):
        status, output = helper.fork(SAYS, A=number, B="b=c")
        assert status == 3
        whole, child, first, second, words, *late = output.splitlines()
        assert late == ["late thread", "exit handler"]
        assert (whole, child) == ("[False] True", "child")
        assert first == f"{tmp_path} {number} b=c True ['{tmp_path}/payload']"
        assert "socket" not in second, "the next requests are not for it"
        assert "pipe" not in second
        assert words == "words"
    assert helper.open_files() == before
    assert helper.fork("print('no error')") == (0, "no error\n")
    assert helper.fork("1 / 0")[0] == 1
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


@pytest.mark.process
def test_where_the_kernel_refuses_siblings_orphans_are_forked_from_then_on(tmp_path: Path) -> None:
    become_subreaper()
    helper = Helper(tmp_path, ("-c", REFUSED))
    try:
        assert [helper.fork(f"print({number})") for number in range(3)] == [(0, "0\n"), (0, "1\n"), (0, "2\n")]
    finally:
        helper.connection.close()
        assert helper.process.wait(60) == 0


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a namespace")
def test_a_fork_enters_the_view_of_its_attempt_or_does_not_run(helper: Helper, tmp_path: Path) -> None:
    hold = subprocess.Popen(["unshare", "-m", "sh", "-c", "echo; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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


def give(value: bytes) -> bytes:
    return value


@pytest.mark.process
async def test_what_it_returns_is_told_with_its_end(controller: FakeController, worker: InProcessWorker) -> None:
    """Of more than a few thousand bytes the digest of a blob that is there by then."""
    value = b"x" * (3 << 20)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the task cannot import it
    try:
        payload = controller.add_blob(cloudpickle.dumps((give, (value,), {})))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    controller.send(run=[run_command(payload=payload)])
    (end,) = await controller.until_ended("/user/job/0:0", timeout_s=60)
    assert end.state == TaskState.SUCCEEDED
    assert unpack_result(controller.blobs[end.result_digest], "it") == value
