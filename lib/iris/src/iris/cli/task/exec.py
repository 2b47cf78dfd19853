"""`iris task exec`."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import say
from iris.cli.params import JOB
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.tasks.command import TaskCommand

_STDIN: Final = 0
_PIECE: Final = 64 * 1024


@click.command("exec")
@click.option("-t", "--tty", "is_terminal", is_flag=True, help="Give the command a terminal: for shells and editors.")
@click.argument("name", type=JOB, metavar="TASK")
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND...")
@pass_context
def exec_command(context: CliContext, name: str, is_terminal: bool, argv: tuple[str, ...]) -> int:
    """Run COMMAND inside the running TASK (of a job with one task: JOB), and exit with its exit code.

    It has the task's directory, files, environment, user and limits, and your stdin. It ends with the task, and when
    you interrupt it or the connection breaks. Only the owner of the job and admins may do this.
    """
    from iris.client.tasks.command import TaskCommand

    with context.client() as client:
        task_id = find_task(client, name)
        window = window_size() if is_terminal else None
        term = os.environ.get("TERM", "") if is_terminal else ""
        command = TaskCommand(client.connection, task_id, argv, terminal=window, term=term)
        with contextlib.closing(command), raw_terminal(command) if is_terminal else contextlib.nullcontext():
            threading.Thread(target=_send_stdin, args=(command,), daemon=True).start()
            for data, is_stderr in command.output():
                stream = sys.stderr.buffer if is_stderr else sys.stdout.buffer
                stream.write(data)
                stream.flush()
        if command.error:
            say(command.error)
        return command.exit_code


def find_task(client: "IrisClient", text: str) -> str:
    """Return the id of the task that `text` names: a task, or a job with one task.

    Raises:
        NotFound: There is no such task or job.
        InvalidRequest: The job has several tasks.
    """
    from iris.cli.job.ids import find_job_or_task

    status, found = find_job_or_task(client, text)
    if found != status.job_id:
        return found
    if status.replicas != 1:
        raise InvalidRequest(f"job {found} has {status.replicas} tasks; name one of them, e.g. {found}/0")
    return f"{found}/0"


def window_size() -> tuple[int, int]:
    """Return the rows and columns of this terminal; 24 and 80 without one."""
    with contextlib.suppress(OSError):
        columns, rows = os.get_terminal_size(_STDIN)
        return rows, columns
    return 24, 80


@contextlib.contextmanager
def raw_terminal(command: "TaskCommand") -> Iterator[None]:
    """Context manager: pass on every key, also Ctrl-C, and changes of the terminal's size. Without a terminal on stdin,
    do nothing.
    """
    if not os.isatty(_STDIN):
        yield
        return
    import termios  # not on every platform
    import tty

    before = termios.tcgetattr(_STDIN)
    former = signal.signal(signal.SIGWINCH, lambda *_: command.resize(*window_size()))
    try:
        tty.setraw(_STDIN)
        yield
    finally:
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, former)


def _send_stdin(command: "TaskCommand") -> None:
    with contextlib.suppress(OSError):  # there is none
        while data := os.read(_STDIN, _PIECE):
            if not command.write(data):
                return
    command.end_input()
