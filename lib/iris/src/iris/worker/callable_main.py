"""Runs one pickled call in the task's own interpreter: `python -P callable_main.py PAYLOAD`.

A separate script, because the job's environment may not contain iris. It needs only the standard library and
cloudpickle, and uses the worker's cloudpickle (IRIS_CLOUDPICKLE) if the environment has none.
"""

import os
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ERROR_BYTES = 8192
_EXCEPTION_BYTES = 64 * 1024
_RESULT_BYTES = 16 * 1024 * 1024
_REASON = 2000
_FRAMES = 3
_NOT_RETURNED = b"! it ended by sys.exit(0), before its function returned\n"


def ensure_cloudpickle(fallback: str) -> None:
    """Make `import cloudpickle` work, from the package directory `fallback` if necessary."""
    import importlib.util

    if importlib.util.find_spec("cloudpickle") is not None or not fallback:
        return
    spec = importlib.util.spec_from_file_location(
        "cloudpickle", os.path.join(fallback, "__init__.py"), submodule_search_locations=[fallback]
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["cloudpickle"] = module
    spec.loader.exec_module(module)


def describe(error: BaseException) -> str:
    """Return one line "Type: message" and the innermost frames with their source, as `iris job run` shows a failure."""
    lines = ["".join(traceback.format_exception_only(error)).strip()]
    for frame in traceback.extract_tb(error.__traceback__)[-_FRAMES:]:
        lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        if frame.line:
            lines.append(f"    {frame.line}")
    return "\n".join(lines)


class _Bounded:
    """A file in memory with a maximum size."""

    def __init__(self, limit: int) -> None:
        self.pieces: list[bytes] = []
        self._left = limit
        self.is_full = False

    def write(self, data: "bytes | memoryview") -> None:
        self._left -= memoryview(data).nbytes
        if self._left < 0:
            self.is_full = True
            raise OverflowError("it is too large to send")
        self.pieces.append(bytes(data))


def pickle_exception(error: BaseException) -> bytes:
    """Return Python's version and a pickle of the exception, for `iris.client.task_ends`; empty if it cannot be
    pickled.

    An exception that cannot be unpickled, because its constructor takes other arguments, is sent in parts.
    """
    try:
        import cloudpickle
    except ImportError:
        return b""

    def pickled(value: object) -> bytes:
        file = _Bounded(_EXCEPTION_BYTES - 8)  # the version in front
        cloudpickle.Pickler(file).dump(value)
        return b"%d.%d\n" % sys.version_info[:2] + b"".join(file.pieces)

    def pickled_whole(error: BaseException) -> bytes:
        try:
            whole = pickled(error)
            again = cloudpickle.loads(whole.partition(b"\n")[2])
            if type(again).__name__ == type(error).__name__ and (str(again), repr(again)) == (str(error), repr(error)):
                return whole
        except Exception:  # whatever a class does when it is pickled, made again or shown
            pass
        return b""

    try:
        return pickled_whole(error) or pickled(_parts(error, lambda member: bool(pickled_whole(member))))
    except Exception:  # as above
        return b""


def _parts(error: BaseException, is_remade: "Callable[[BaseException], bool]") -> "tuple[object, ...]":
    # As rigging.process.exception_parts.take_apart, which need not exist here.
    kind = type(error)
    native = next(base for base in kind.__mro__ if base.__module__ == "builtins" and issubclass(base, BaseException))
    reduced = native.__reduce__(error)
    args = reduced[1]
    if hasattr(error, "exceptions") and native.__name__.endswith("ExceptionGroup"):
        args = (args[0], [item if is_remade(item) else _parts(item, is_remade) for item in error.exceptions])
    return (kind, native, args, reduced[2] if len(reduced) > 2 else None)


def write_error(text: str, exception: bytes = b"") -> None:
    """Write the attempt's error for the worker: `text`, a NUL, and the pickled exception."""
    path = os.environ.get("IRIS_ERROR_FILE")
    if not path:
        return
    try:
        with open(path, "wb") as file:
            file.write(text[:_ERROR_BYTES].replace("\0", "\\0").encode(errors="replace"))
            if exception:
                file.write(b"\0" + exception)
    except OSError as error:
        print(f"cannot write {path}: {error}", file=sys.stderr)


def pack_result(value: object) -> bytes:
    """Return Python's version and a pickle of the callable's return value, or a line with the reason why there is none.

    The format is that of rigging.results. Only a large value, which goes to storage, needs rigging to be installed.
    """
    kind = type(value).__name__
    file = _Bounded(_RESULT_BYTES)
    try:
        import cloudpickle

        cloudpickle.Pickler(file).dump(value)
        return b"%d.%d\n" % sys.version_info[:2] + b"".join(file.pieces)
    except Exception as error:  # whatever a class does when it is pickled
        if not file.is_full:
            reason = " ".join("".join(traceback.format_exception_only(error)).split())
            return f"! a value of type {kind} cannot be sent: {reason}"[:_REASON].encode(errors="replace") + b"\n"
    file.pieces.clear()
    try:
        from rigging.results import pack_result as pack_large
    except ImportError:
        return (
            f"! a value of type {kind} takes more than {_RESULT_BYTES >> 20} MiB, and marin-rigging, which stores it, "
            "is not installed in the job's environment: write the value to a file and return the path\n"
        ).encode()
    return pack_large(value)


def write_result(packed: bytes) -> None:
    """Write the callable's packed return value for the worker; an empty file for None. No file means that no callable
    has returned.
    """
    path = os.environ.get("IRIS_ERROR_FILE")
    if not path:
        return
    try:
        with open(f"{path}.value", "wb") as file:
            file.write(packed)
    except OSError as error:
        print(f"cannot store the return value: {error}", file=sys.stderr)
        with open(f"{path}.value", "wb") as file:
            file.write(f"! the worker's host could not store it: {error}\n".encode())


def wrong_python(pickled_by: str) -> str:
    """Return why this interpreter cannot load a pickle of Python `pickled_by` ("3.12"); empty for none."""
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not pickled_by or pickled_by == own:
        return ""
    return f"the callable was pickled by Python {pickled_by}, but its task runs Python {own} ({sys.executable})"


def announce_progress() -> None:
    """If the job has a stall timeout, let the worker make this process dump its threads before it stops a stalled
    attempt.

    The job's environment may not contain `iris.progress`, so this function repeats its line and signal.
    """
    path = os.environ.get("IRIS_PROGRESS_FILE")
    if not path:
        return
    import faulthandler
    import signal

    number = signal.SIGRTMIN + 11
    try:
        faulthandler.register(number, file=2, all_threads=True)
        with open(path, "a") as file:
            print(os.getpid(), int(number), file=file)
    except (OSError, ValueError) as error:
        print(f"thread dumps are not available: {error}", file=sys.stderr)


def finish(function: "Callable[..., object]", value: object) -> object:
    """Await the result of an `async def` function; refuse a generator. Like `rigging.process.calls`, which the job's
    environment may not contain.
    """
    from types import AsyncGeneratorType, CoroutineType, GeneratorType

    if isinstance(value, (GeneratorType, AsyncGeneratorType)):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise ValueError(f"{name} is a generator function: calling it runs none of its code")
    if isinstance(value, CoroutineType):
        import asyncio

        return asyncio.run(_awaited(value, os.getpid()))
    return value


async def _awaited(coroutine: "Awaitable[object]", process: int) -> object:
    code: object = 0
    value: object = None
    try:
        value = await coroutine
    except BaseException as error:
        if os.getpid() == process:
            raise
        code = error.code if isinstance(error, SystemExit) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    if os.getpid() != process:
        leave(code)  # a fork shares the event loop's descriptors: it must not get as far as the loop's end
    return value


def main(payload_path: str) -> int:
    """Load and call the payload; return 0 if the call returned, 1 if it raised."""
    import pickle

    process = os.getpid()
    announce_progress()
    reason = wrong_python(os.environ.pop("IRIS_PICKLED_BY", ""))
    if reason:
        print(reason, file=sys.stderr)
        write_error(reason)
        return 1
    # As `python -m` would: the task's own directory comes first.
    sys.path.insert(0, os.getcwd())
    try:
        ensure_cloudpickle(os.environ.pop("IRIS_CLOUDPICKLE", ""))
        with open(payload_path, "rb") as file:
            function, args, kwargs = pickle.load(file)  # noqa: S301 - the submitter's own code is what we are here to run
        value = finish(function, function(*args, **kwargs))
        if os.getpid() == process:
            write_result(b"" if value is None else pack_result(value))
    except SystemExit as end:
        if end.code in (None, 0) and os.getpid() == process:
            write_result(_NOT_RETURNED)
        if isinstance(end.code, int) and end.code and not end.code & 0xFF:
            return 1  # of which the system would keep the 0 alone
        if end.code is not None and not isinstance(end.code, int) and os.getpid() == process:
            write_error(f"sys.exit: {end.code}")  # as the interpreter prints it, and ends with 1
        raise
    except Exception as error:
        traceback.print_exc()
        if os.getpid() != process:
            return 1  # a fork of the callable's: how the attempt ended is not its to say
        text = describe(error)
        write_error(text)  # first: whatever pickling does
        write_error(text, pickle_exception(error))
        return 1
    return 0


def serve(descriptor: int) -> str:
    """Fork for every request on the socket; in each fork, return the path of its payload.

    A request is the length of its body, with descriptors (gate, stdout, stderr, and optionally the mount namespace that
    the fork enters), and the body: payload, directory and variables, separated by NUL. The answer is the pid of the
    fork. The fork continues when it reads "g" from the gate.
    """
    import gc
    import importlib.util
    import pickle  # noqa: F401 - warm
    import socket
    import struct

    ensure_cloudpickle(os.environ.get("IRIS_CLOUDPICKLE", ""))
    if importlib.util.find_spec("cloudpickle") is not None:
        import cloudpickle  # noqa: F401 - warm
    fork = _sibling_fork() or _fork_twice
    gc.freeze()
    connection = socket.socket(fileno=descriptor)
    connection.sendall(b"R")
    while True:
        header, descriptors, _, _ = socket.recv_fds(connection, 4, 4)
        if len(header) < 4:
            os._exit(0)
        (size,) = struct.unpack("!I", header)
        body = connection.recv(size, socket.MSG_WAITALL)
        try:
            pid = fork()
        except OSError:
            if fork is _fork_twice:
                raise
            # As where system calls are filtered.
            fork = _fork_twice
            pid = fork()
        if pid == 0:
            os.setsid()
            os.close(connection.detach())
            return _become(body, descriptors)
        for passed in descriptors:
            os.close(passed)
        connection.sendall(struct.pack("!i", pid))


def _fork_twice() -> int:
    """Like os.fork(), but the child is orphaned, so that the guardian, a subreaper, becomes its parent."""
    read_end, write_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        if os.fork():
            os._exit(0)
        os.write(write_end, os.getpid().to_bytes(4, "big"))
        os.close(read_end)
        os.close(write_end)
        return 0
    os.close(write_end)
    answer = os.read(read_end, 4)
    os.close(read_end)
    os.waitpid(middle, 0)
    return int.from_bytes(answer, "big")


def _sibling_fork() -> "Callable[[], int] | None":
    """Return an os.fork() that creates a sibling of the caller instead of a child; None if that is not possible.

    A start takes 1.3 ms of processor time this way, 2.7 ms with `_fork_twice`, and blocks the helper for 0.4 instead of
    1.8 ms (measured with cloudpickle imported); a whole warm start takes about 3 ms.

    Python and glibc have no such call, so this uses the kernel's CLONE_PARENT and repeats the rest of os.fork() and
    glibc's fork(): Python's own handlers, and the thread's id in glibc's memory, which identifies the owners of
    mutexes. This process has one thread.
    """
    import struct

    # The numbers are the same on all processors.
    clone3, parent, set_id, clear_id, get_id_address = 435, 0x8000, 0x1000000, 0x200000, 40
    try:
        import ctypes

        # Other C libraries have something else at the address that is asked for below.
        if sys.platform != "linux" or not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return None
        python = ctypes.PyDLL(None)
        syscall, prctl, before = python.syscall, python.prctl, python.PyOS_BeforeFork
        after_here, after_there = python.PyOS_AfterFork_Parent, python.PyOS_AfterFork_Child
    except (ImportError, AttributeError, ValueError):
        return None
    syscall.restype = ctypes.c_long
    syscall.argtypes = [ctypes.c_long, ctypes.c_char_p, ctypes.c_size_t]
    thread_id = ctypes.POINTER(ctypes.c_int)()
    nothing = ctypes.c_ulong(0)
    if prctl(get_id_address, ctypes.byref(thread_id), nothing, nothing, nothing) != 0:
        return None
    if thread_id.contents.value != os.getpid():
        return None
    address = ctypes.cast(thread_id, ctypes.c_void_p).value or 0
    arguments = struct.pack("=8Q", parent | set_id | clear_id, 0, address, 0, 0, 0, 0, 0)

    def fork() -> int:
        before()
        pid: int = syscall(clone3, arguments, len(arguments))
        if pid == 0:
            after_there()
            return 0
        after_here()
        if pid < 0:
            raise OSError("clone3 was refused")
        return pid

    return fork


def _become(body: bytes, descriptors: "list[int]") -> str:
    """Wait for the gate, then set the variables, directory and output of an attempt; return the path of its payload."""
    gate, out, err, *namespace = descriptors
    if os.read(gate, 1) != b"g":
        os._exit(75)
    os.close(gate)
    _join(body)
    _enter(namespace)
    for descriptor, number in ((out, 1), (err, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    payload, directory, *variables = map(os.fsdecode, body.split(b"\0"))
    for variable in variables:
        name, _, value = variable.partition("=")
        if name != "IRIS_JOIN_GROUPS":
            os.environ[name] = value
    os.chdir(directory)
    sys.argv = [sys.argv[0], payload]
    return payload


def _join(body: bytes) -> None:
    """Enter the attempt's control groups, if any. A process moves itself much faster than another process."""
    for variable in body.split(b"\0")[2:]:
        name, _, paths = variable.partition(b"=")
        for path in paths.split(b"\n") if name == b"IRIS_JOIN_GROUPS" else ():
            try:
                with open(path, "wb", buffering=0) as file:
                    file.write(b"0")
            except OSError as error:
                os.write(2, f"cannot enter the control group of the task: {error}\n".encode())
                os._exit(75)


def _enter(namespace: "list[int]") -> None:
    """Enter the mount namespace, if any, and drop the capabilities that this required."""
    is_root = os.geteuid() == 0
    if is_root and not namespace:
        return
    import ctypes
    import struct

    libc = ctypes.CDLL(None, use_errno=True)
    mount_namespace, ambient, clear_all = 0x20000, 47, 4
    for descriptor in namespace:
        if libc.setns(descriptor, mount_namespace) != 0:
            # Without it the call would see, and could change, what is shared with other tasks.
            os.write(2, f"cannot enter the task's view of its files: {os.strerror(ctypes.get_errno())}\n".encode())
            os._exit(75)
        os.close(descriptor)
    if not is_root:
        libc.prctl(ambient, clear_all, 0, 0, 0)
        libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24))


def leave(code: object) -> None:
    """Exit a fork like `sys.exit(code)`, but without tearing down the interpreter, whose memory it shares with the
    helper.
    """
    import atexit
    import contextlib
    import threading

    number = 0 if code is None else code if isinstance(code, int) else 1
    if number != code and code is not None:
        print(code, file=sys.stderr)
    # As multiprocessing ends its forks: threads are waited for, then exit handlers run.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or not read
            stream.flush()
    os._exit(number & 0xFF)


def main_forked(payload_path: str) -> None:
    """Run `main` in a fork of `serve`."""
    try:
        code: object = main(payload_path)
    except SystemExit as exit:
        code = exit.code
    leave(code)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        main_forked(serve(int(sys.argv[2])))
    sys.exit(main(sys.argv[1]))
