"""What the script that runs a callable does by itself: errors, versions, payloads, and what a fork takes on."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.client.task_exceptions import load_exception
from iris.cluster.types import Entrypoint
from iris.worker import callable_main
from iris.worker.callable_main import describe, finish, main, write_error, wrong_python
from iris.worker.reports.error_file import read_error_file
from rigging.errors import InvalidRequest

OWN = ".".join(map(str, sys.version_info[:2]))


def test_what_this_python_pickled_it_can_read_and_what_nobody_says_it_tries() -> None:
    assert wrong_python("") == wrong_python(OWN) == ""
    assert wrong_python("2.7") == (
        f"the callable was pickled by Python 2.7, and its task runs on Python {OWN} ({sys.executable})"
    )


@pytest.mark.parametrize(("code", "ends"), [(256, 1), (512, 1), (3, None), ("why", None), (0, None), (None, None)])
def test_a_code_of_which_the_system_would_keep_a_zero_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Any, ends: int | None
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    payload = tmp_path / "payload"
    payload.write_bytes(pickle.dumps((sys.exit, (code,), {})))
    if ends is not None:
        assert main(str(payload)) == ends
        return
    with pytest.raises(SystemExit) as left:
        main(str(payload))
    assert left.value.code == code


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("bad input")


def test_an_error_is_told_by_its_type_its_text_and_the_innermost_frames() -> None:
    with pytest.raises(ValueError, match="bad input") as raised:
        deep(5)
    first, *frames = describe(raised.value).split("\n")
    assert first == "ValueError: bad input"
    assert len(frames) == 6
    assert all(frame.startswith(f'  File "{__file__}", line ') and frame.endswith(", in deep") for frame in frames[::2])
    assert frames[1::2] == ["    deep(levels - 1)", "    deep(levels - 1)", '    raise ValueError("bad input")']


def test_frames_whose_source_is_not_here_are_told_without_it() -> None:
    scope: dict[str, object] = {}
    exec(compile("def fail():\n    raise ValueError('bad')", "/elsewhere/shards.py", "exec"), scope)
    fail = scope["fail"]
    assert callable(fail)
    with pytest.raises(ValueError, match="bad") as raised:
        fail()
    assert describe(raised.value).endswith('\n  File "/elsewhere/shards.py", line 2, in fail')


class TestWords:
    def test_they_are_left_for_the_worker_and_cut(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("IRIS_ERROR_FILE", str(tmp_path / "error"))
        write_error("é" * 10_000)
        assert (tmp_path / "error").read_text(encoding="utf-8") == "é" * 8192

    def test_without_a_place_for_them_nothing_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("IRIS_ERROR_FILE", raising=False)
        write_error("text")
        assert list(tmp_path.iterdir()) == []
        assert capfd.readouterr() == ("", "")

    def test_a_place_that_cannot_be_written_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("IRIS_ERROR_FILE", str(tmp_path / "none" / "error"))
        write_error("text")
        assert f"cannot write {tmp_path / 'none' / 'error'}: " in capsys.readouterr().err


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

    def test_it_calls_with_its_own_directory_first_and_hides_what_it_was_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        called = pickle.dumps((print, (1,), {}))
        monkeypatch.setattr("builtins.print", note)
        (tmp_path / "payload").write_bytes(called)
        assert main(str(tmp_path / "payload")) == 0
        assert seen == [((1,), {}, str(tmp_path), False, False)]
        assert not (tmp_path / "error").exists()

    def test_what_it_raises_is_its_error(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(self.payload(tmp_path, int, "x")) == 1
        words = read_error_file(str(tmp_path / "error"))
        assert words.text.startswith("ValueError: invalid literal for int()")
        assert isinstance(load_exception(words.exception), ValueError)
        assert "Traceback (most recent call last)" in capsys.readouterr().err

    def test_where_there_is_no_cloudpickle_its_text_is_told_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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


BECOME = """
import os, sys
from iris.cluster.types import Entrypoint
from iris.worker import callable_main
gate, gate_write = os.pipe()
out, err = os.open("out", os.O_WRONLY | os.O_CREAT), os.open("err", os.O_WRONLY | os.O_CREAT)
os.write(gate_write, sys.argv[1].encode())
before = len(os.listdir("/proc/self/fd"))
payload = callable_main._become(b"/the/payload\\0" + sys.argv[2].encode() + b"\\0A=1=2\\0B=", [gate, out, err])
print(payload, os.getcwd(), os.environ["A"], repr(os.environ["B"]), sys.argv)
print("to stderr", file=sys.stderr)
print(before - len(os.listdir("/proc/self/fd")), os.get_inheritable(1))
"""


def become(tmp_path: Path, word: str) -> tuple[int, str, str]:
    (tmp_path / "there").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BECOME, word, str(tmp_path / "there")], cwd=tmp_path, timeout=60, check=False
    )
    return done.returncode, (tmp_path / "out").read_text(), (tmp_path / "err").read_text()


def test_a_fork_takes_on_the_variables_directory_and_output_of_its_attempt(tmp_path: Path) -> None:
    code, out, err = become(tmp_path, "g")
    assert (code, err) == (0, "to stderr\n")
    first, second = out.splitlines()
    assert first == f"/the/payload {tmp_path / 'there'} 1=2 '' ['-c', '/the/payload']"
    assert second == "3 True", "gate, stdout and stderr are closed but for the copies"


def test_a_fork_that_is_not_told_to_begin_does_not(tmp_path: Path) -> None:
    assert become(tmp_path, "x") == (75, "", "")


LEAVE = """
import atexit, sys, threading
from iris.cluster.types import Entrypoint
from iris.worker import callable_main
def late():
    threading.main_thread().join(0.05)
    print("thread")
atexit.register(lambda: print("exit handler"))
threading.Thread(target=late).start()
callable_main.leave(eval(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("code", "ended", "err"), [("None", 0, ""), ("0", 0, ""), ("3", 3, ""), ("256 + 4", 4, ""), ("'gone'", 1, "gone\n")]
)
def test_a_fork_ends_as_a_process_does(code: str, ended: int, err: str) -> None:
    done = subprocess.run([sys.executable, "-c", LEAVE, code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (ended, "thread\nexit handler\n", err)


def script(payload: Path, *options: str, **variables: str) -> tuple[int, str, str]:
    words = [sys.executable, "-P", *options, callable_main.__file__, str(payload)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=variables)
    return done.returncode, done.stdout, done.stderr


def test_the_script_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(pickle.dumps((print, ("called",), {})))
    assert script(tmp_path / "payload", "-I", "-S") == (0, "called\n", "")


def test_cloudpickle_is_taken_from_beside_the_worker_only_where_there_is_none(tmp_path: Path) -> None:
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


FORKS = """
import os
child = os.fork()
if child == 0:
    raise LookupError("no shards in the child")
os._exit(3 + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_leaves_no_words_for_the_worker(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(pickle.dumps((exec, (FORKS, {}), {})))
    code, _, error = script(tmp_path / "payload", IRIS_ERROR_FILE=str(tmp_path / "error"))
    assert (code, "no shards in the child" in error) == (4, True)
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


def test_children_that_an_async_function_forks_end_as_others_do(tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(ASYNC_FORKS)
    (tmp_path / "payload").write_bytes(b"(cforks\nrun\n)}t.")  # forks.run, without arguments
    variables = {"PYTHONPATH": str(tmp_path), "IRIS_ERROR_FILE": str(tmp_path / "error")}
    code, output, error = script(tmp_path / "payload", **variables)
    assert (code, output) == (7, "[0, 1, 5, 1]\n")
    assert error.count("Traceback") == 1, "of the one that raised; the loop, which they share, is not touched"
    assert "no shards in the child" in error
    assert "gone\n" in error
    assert not (tmp_path / "error").exists()


def test_what_an_async_function_raises_is_raised_where_it_was_called() -> None:
    async def load() -> None:
        raise LookupError("no shards")

    with pytest.raises(LookupError, match="no shards"):
        finish(load, load())


def test_generator_functions_are_refused_where_they_are_named() -> None:
    def shards() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidRequest, match=r"shards is a generator function: calling it runs none of its code"):
        Entrypoint.from_callable(shards)
