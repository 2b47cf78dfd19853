"""Run the `ray` program in the user's terminal, or to read a command's output from the head."""

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import IO, Final

from marin.run.cluster.ray_commands import RayCommand, execute
from marin.run.connection import find_ray
from rigging.errors import Conflict, Unavailable

_KEPT: Final = 4000


def run(command: RayCommand) -> None:
    """Run `ray` in the user's terminal. Raise Conflict with its exit code if it fails."""
    code = run_in_terminal(command)
    if code:
        raise Conflict(f"`{command}` failed with exit code {code}")


def run_in_terminal(command: RayCommand) -> int:
    """Run `ray` in the user's terminal. Return its exit code, or 128 + n if signal n ended it."""
    process = subprocess.Popen([find_ray(), *command.words], env={**os.environ, **dict(command.variables)})
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            continue  # the terminal sends it to `ray`, too, which ends in its own way
        except BaseException:
            process.terminate()
            raise
    return 128 - code if code < 0 else code


def run_on_head(file: str, text: str, on_output: Callable[[str], None]) -> int:
    """Run a shell command on the head and return its exit code, which `ray exec` drops.

    Args:
        file: The cluster's file.
        text: The shell command.
        on_output: Called with each line of the command's output, with its line break. Ray's own output is omitted.

    Raises:
        Unavailable: Ray could not run the command. The message ends with Ray's last output.
    """
    mark = f"marin-{secrets.token_hex(8)}"
    command = execute(file, marked(text, mark))
    before = ""
    code: int | None = None
    end = f"{mark}-end "
    with _started(command) as output:
        begun = False
        for raw in output:
            line = raw.decode(errors="replace").replace("\r\n", "\n")
            if not begun:
                begun = line.rstrip("\n") == f"{mark}-begin"
                before += "" if begun else line
                continue
            printed, found, rest = line.partition(end)
            if printed:
                on_output(printed)
            if found:
                code, begun = int(rest), False
    if code is None:
        raise Unavailable(f"`{execute(file, text)}` did not finish; Ray's output:\n{_words(before)}")
    return code


def _words(said: str) -> str:
    """Return Ray's message; for a traceback its last line, which has the error."""
    said = said.strip()
    return said.rpartition("\n")[2] if "Traceback (most recent call last):" in said else said[-_KEPT:]


def read_on_head(file: str, text: str) -> tuple[int, str]:
    """Run a shell command on the head and return its exit code and output. Raise Unavailable."""
    lines: list[str] = []
    code = run_on_head(file, text, lines.append)
    return code, "".join(lines)


def marked(text: str, mark: str) -> str:
    """Return a shell command that prints marks around its output, followed by its exit code."""
    # In a shell of its own, so that `exit` in it does not end this one.
    return f"echo {mark}-begin\n(\n{text}\n)\necho {mark}-end $?"


@contextlib.contextmanager
def _started(command: RayCommand) -> Iterator[IO[bytes]]:
    process = subprocess.Popen(
        [find_ray(), *command.words],
        env={**os.environ, **dict(command.variables)},
        stdin=subprocess.DEVNULL,  # ssh would be stopped for asking a terminal that is not its own
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
        process.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        process.stdout.close()
