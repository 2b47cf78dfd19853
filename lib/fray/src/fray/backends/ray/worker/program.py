"""Programs inside Ray's worker processes."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from fray.backends.common.processes import OutputFile, ProcessTree, describe_failure, with_own_python
from fray.backends.ray.payload import TaskResult
from fray.types import BinaryEntrypoint
from rigging.process.exception_parts import title_of

_LOOK_SECONDS = 0.05


def run_program(
    entry: BinaryEntrypoint, workspace: str | None, output: OutputFile, make: "type[Program] | None" = None
) -> TaskResult | None:
    """Run a program to its end, or stop it when the job is cancelled. Return None if it succeeded.

    Args:
        entry: The program.
        workspace: The working directory, if it exists there.
        output: Receives its output.
        make: The class that starts and stops it; None for `Program`.
    """
    env = {**os.environ, "FRAY_CLIENT": os.environ.get("FRAY_CLIENT", "ray")}
    env["PATH"] = with_own_python(env.get("PATH"))
    cwd = workspace if workspace is not None and os.path.isdir(workspace) else None
    program = (make or Program)([entry.command, *entry.args], env, cwd, output)
    try:
        # A cancelled task gets KeyboardInterrupt, which only reaches Python code that runs.
        program.start()
        while not program.join(_LOOK_SECONDS):
            continue
    except KeyboardInterrupt:
        program.stop()
    if program.error is not None:
        return TaskResult(summary=f"cannot start {entry.command!r}: {_reason(program.error)}")
    if program.code == 0:
        return None
    return TaskResult(summary=describe_failure(repr(entry.command), program.code, output), exit_code=program.code)


class Program:
    """A program with its own thread, which also starts it.

    In the main thread, a KeyboardInterrupt could come between the start of a process and its recording.

    Args:
        argv: The command line.
        env: The complete environment.
        cwd: The working directory; None for the current one.
        output: Receives its output.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None, output: OutputFile) -> None:
        self.code = -signal.SIGTERM
        self.error: Exception | None = None
        self._argv, self._env, self._cwd, self._output = argv, env, cwd, output
        self._lock = threading.Lock()
        self._tree: ProcessTree | None = None
        self._stopping = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fray-program", daemon=True)

    def start(self) -> None:
        """Start the program."""
        self._thread.start()

    def launch(self) -> ProcessTree:
        """Start the process, in the program's thread."""
        return ProcessTree.start(self._argv, self._env, self._cwd, self._output)

    def join(self, timeout: float) -> bool:
        """Wait, and return whether the program has ended."""
        return self._ended.wait(timeout)

    def stop(self) -> None:
        """Stop the program, or prevent its start, and return when it has ended."""
        with self._lock:
            self._stopping = True
            if self._tree is not None:
                self._tree.terminate()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with _guard() as kill_with_us:
                with self._lock:
                    if self._stopping:
                        return
                    self._tree = self.launch()
                kill_with_us(self._tree.group)
                self.code = self._tree.wait()
        except Exception as error:  # a word that is no text, or has a NUL in it, is refused in other ways than a file
            self.error = error
        finally:
            self._ended.set()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename}"
    return title_of(error)


# It reads until the pipe closes, which the kernel does for a process that was killed, too; a second line says that the
# program has ended. The shell that waits is no child of this process: Ray kills those of a worker whose driver is gone.
_GUARD = """exec 3<&0
{ read group && { read _ || kill -s KILL -- "-$group"; }; } <&3 3<&- &"""


@contextlib.contextmanager
def _guard() -> Iterator[Callable[[int], None]]:
    """Return a guard that kills a process group if this process dies inside the block.

    A shell starts in a tenth of the time of a Python lifeline.
    """
    read, write = os.pipe()
    with open(write, "wb", buffering=0) as pipe:
        try:
            subprocess.run(
                ["/bin/sh", "-c", _GUARD],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                check=True,
            )
        finally:
            os.close(read)

        def tell(line: str) -> None:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(f"{line}\n".encode())

        try:
            yield lambda group: tell(str(group))
        finally:
            tell("")
