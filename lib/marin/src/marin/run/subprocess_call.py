"""`in_subprocess`: run a function's calls in separate processes, with no effect on the caller's process."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, ParamSpec, TypeVar

from fray.backends.common import lifeline
from fray.errors import JobFailed
from fray.sending.pickling import dumps
from fray.sending.remote_errors import pack_error, unpack_error
from rigging.errors import InvalidRequest

P = ParamSpec("P")
R = TypeVar("R")

_KILL_AFTER_SECONDS: Final = 5.0


def in_subprocess(fn: Callable[P, R]) -> Callable[P, R]:
    """Run each call of `fn` in a new Python process. Return its result or raise its exception.

    This is for TPU work on Ray, whose long-lived worker processes would otherwise keep the devices: libtpu is loaded in
    the call's process and disappears with it. Put it below `@ray.remote`. The process has this process's variables,
    directory and import path, and writes to its stdout and stderr. It ends with its children when this process ends,
    even if killed, or when the call is interrupted. Arguments and results must be picklable.

    Raises:
        InvalidRequest: `fn` is not a function, or is a generator or coroutine function; or something cannot be pickled.
        JobFailed: The process died without a result. See `exit_code`.
    """
    if not callable(fn) or isinstance(fn, staticmethod):
        raise InvalidRequest(
            f"in_subprocess: {_name(fn)} is not a function; put it over one (below @staticmethod or similar)"
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn) or inspect.iscoroutinefunction(fn):
        raise InvalidRequest(
            f"in_subprocess: {_name(fn)} is a generator or coroutine function; only plain functions can be sent"
        )
    if hasattr(fn, "remote"):
        raise InvalidRequest(f"in_subprocess: put it below @ray.remote, so that {_name(fn)} runs where Ray starts it")

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        value: R = _call_apart(fn, args, kwargs)
        return value

    return call


def _call_apart(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = _name(fn)
    # The child imports what this process can.
    path = [entry or os.getcwd() for entry in sys.path]
    payload = pickle.dumps((path, dumps((fn, args, kwargs), f"in_subprocess: {name} or its arguments", path)))
    with tempfile.TemporaryDirectory(prefix="marin-call-") as directory:
        call, result = os.path.join(directory, "call"), os.path.join(directory, "result")
        with open(call, "wb") as file:
            file.write(payload)
        code = _run([sys.executable, "-m", "marin.run.subprocess_child", call, result])
        try:
            with open(result, "rb") as file:
                returned, content = pickle.load(file)  # noqa: S301 - of our own child
        except FileNotFoundError:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise JobFailed(f"{name}: its process ended without a result: {how}", exit_code=code) from None
    if returned:
        return pickle.loads(content)  # noqa: S301 - as above
    raise unpack_error(content, name)


def _run(command: list[str]) -> int:
    """Run a program in a separate process group to its end, or until this process ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    try:
        # One that must not be ours to run Python in: a library's C code may keep the interpreter from noticing our end.
        watched = [sys.executable, "-I", "-S", lifeline.__file__, str(reading), *command]
        process = subprocess.Popen(watched, pass_fds=[reading], process_group=0)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_AFTER_SECONDS)
        raise
    finally:
        # What it has started would keep the devices.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        os.close(writing)
        process.wait()
    return process.returncode


def _name(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", None) or repr(fn))


def run_child(call: str, result: str) -> int:
    """In the child: run the pickled call from one file, and write its outcome to another."""
    with open(call, "rb") as file:
        import_path, payload = pickle.load(file)  # noqa: S301 - of our own parent
    sys.path[:] = import_path
    try:
        fn, args, kwargs = pickle.loads(payload)  # noqa: S301 - as above
        value = fn(*args, **kwargs)
        content = (True, dumps(value, f"in_subprocess: what {_name(fn)} returned"))
    except BaseException as error:  # belongs to the caller
        content = (False, pack_error(error))
    with open(result + ".part", "wb") as file:
        pickle.dump(content, file)
    os.replace(result + ".part", result)
    return 0
