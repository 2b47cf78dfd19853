"""`fray`: list the backends, and run a command on one for a quick try."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, TextIO

import click

from fray.client import Client, JobHandle, TellsPendingReason, TellsStart
from fray.context import default_spec
from fray.errors import JobFailed
from fray.output.growing_text import SKIPPED, GrowingText
from fray.registry import Backend, connect, known_backends
from fray.types import Entrypoint, JobRequest, ResourceConfig, create_environment
from rigging.errors import InvalidRequest, MarinError
from rigging.exit_codes import FAILURE, INTERRUPTED, REFUSED
from rigging.process.interrupts import unwrapped_interrupts
from rigging.project.env_files import read_env_files

__all__ = ["SKIPPED", "LogFollower"]


class LogFollower:
    """Write a job's output since the last call.

    Args:
        job: The job.
        to: The output stream.
    """

    def __init__(self, job: JobHandle, to: TextIO) -> None:
        self._job = job
        self._to = to
        self._log = GrowingText()

    def show(self, *, ended: bool = False) -> None:
        """Write new text. Until the job has `ended`, keep back incomplete characters."""
        self._to.write(self._log.take_new(self._job.logs(), ended=ended))
        self._to.flush()


_LOG_SECONDS = 0.2
_LOG_SHARE = 5
_STOP_SECONDS = 30.0
_PENDING_SECONDS = 3.0


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="marin-fray", prog_name="fray")
def cli() -> None:
    """Run jobs through fray.

    Exit codes: 0 success; 2 usage error; 3 refused, with the reason; 130 interrupted (143 by SIGTERM, 129 by SIGHUP),
    after stopping the job. `fray run` otherwise exits with the code of its command (128 + number for a signal; 1 if the
    job failed without one).
    """


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def backends(as_json: bool) -> int:
    """List the backends, their FRAY_CLIENT values, and whether they can be used here."""
    current = default_spec(os.environ).partition("://")[0]
    rows = [_row(backend, current) for backend in known_backends()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return 0
    width = max(len(", ".join(row["specs"])) for row in rows)
    click.echo(f"  {'BACKEND':8} {'FRAY_CLIENT':{width}} USABLE")
    for row in rows:
        usable = "yes" if row["usable"] else f"no: {row['why_not']}"
        mark = "*" if row["current"] else " "
        click.echo(f"{mark} {row['name']:8} {', '.join(row['specs']):{width}} {usable}")
    if any(row["current"] for row in rows):
        click.echo("* what current_client() uses here")
    else:
        click.echo(f"current_client() fails here: FRAY_CLIENT is {current!r}, which is not in this list")
    return 0


def _row(backend: Backend, current: str) -> dict[str, Any]:
    why_not = backend.missing()
    return {
        "name": backend.name,
        "specs": list(backend.forms),
        "usable": why_not is None,
        "why_not": why_not,
        "current": backend.name == current,
    }


@cli.command()
@click.option("--backend", metavar="SPEC", help="As in FRAY_CLIENT [default: what current_client() would use].")
@click.option("--name", default="fray-run", show_default=True, help="The job's name.")
@click.option("--cpu", type=float, default=1, show_default=True, help="Processors.")
@click.option("--ram", default="1g", show_default=True, help="Memory.")
@click.option(
    "-e", "env_vars", multiple=True, metavar="KEY=VALUE", help="Environment variable of the command; may be repeated."
)
@click.option(
    "--env-file", "env_files", metavar="FILE", multiple=True, help="File of variables, one NAME=value per line."
)
@click.option("--when", is_flag=True, help="Print when the job would start, and run nothing; on Slurm.")
@click.argument("command", nargs=-1, required=True)
def run(
    backend: str | None,
    name: str,
    cpu: float,
    ram: str,
    env_vars: tuple[str, ...],
    env_files: tuple[str, ...],
    when: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND as a job in the current directory: `fray run --backend ray -- python -m trainer`.

    Shows the job's output and exits with its code. Ctrl-C, SIGTERM and SIGHUP stop the job.
    """
    variables = read_env_files(env_files)
    for pair in env_vars:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="-e")
        variables[key] = value
    request = JobRequest(
        name,
        Entrypoint.from_binary(command[0], command[1:]),
        ResourceConfig.with_cpu(cpu=cpu, ram=ram),
        create_environment(env_vars=variables),
    )
    with _interrupted_by_signals():
        client = connect(backend or default_spec(os.environ))
        try:
            if when:
                return _tell_start(client, request)
            job = client.submit(request, adopt_existing=False)
            # Again: connecting to Ray sets a handler of its own.
            with _interrupted_by_signals():
                return _follow(job)
        finally:
            client.shutdown(wait=False)


def _tell_start(client: Client, request: JobRequest) -> int:
    if not isinstance(client, TellsStart):
        raise InvalidRequest(f"--when: {type(client).__name__} cannot tell when a job starts; use --backend slurm")
    click.echo(client.expected_start(request))
    return 0


class _Signalled(KeyboardInterrupt):
    """Raised for SIGTERM and SIGHUP, so that they act like Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _raise_signalled(number: int, _: FrameType | None) -> None:
    raise _Signalled(number)


@contextlib.contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like an interrupt, but leave an ignored signal ignored, such as SIGHUP under nohup."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    taken = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in taken:
            signal.signal(number, _raise_signalled)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _interrupted(error: BaseException | None) -> int:
    """Return the exit code for an interrupt."""
    return 128 + error.number if isinstance(error, _Signalled) else INTERRUPTED


def _follow(job: JobHandle) -> int:
    """Show the job's output until its end, and why it is pending. Return the exit code."""
    ended = threading.Event()
    job.add_done_callback(lambda _: ended.set())
    log = LogFollower(job, sys.stdout)
    pause, reason, ask_at = _LOG_SECONDS, "", time.monotonic() + _PENDING_SECONDS
    try:
        while not ended.wait(pause):
            began = time.monotonic()
            log.show()
            if began >= ask_at:
                reason, ask_at = _tell_reason(job, reason), began + _PENDING_SECONDS
            # Each look gets the whole log: the longer that takes, the rarer they are.
            pause = max(_LOG_SECONDS, _LOG_SHARE * (time.monotonic() - began))
        log.show(ended=True)
        job.wait()
    except KeyboardInterrupt as error:
        # After a hangup there may be no terminal to write to.
        with contextlib.suppress(OSError):
            _say(f"stopping job {job.job_id}")
        job.terminate()
        job.wait(_STOP_SECONDS, raise_on_failure=False)
        with contextlib.suppress(OSError):
            log.show(ended=True)
            _say(f"stopped job {job.job_id}")
        return _interrupted(error)
    except JobFailed as error:
        if error.exit_code is None:
            _say(str(error))
            return FAILURE
        return error.exit_code if error.exit_code >= 0 else 128 - error.exit_code
    return 0


def _tell_reason(job: JobHandle, told: str) -> str:
    """Say why a job is pending if the reason is new, and return the reason."""
    reason = job.pending_reason() if isinstance(job, TellsPendingReason) else ""
    if reason not in ("", told):
        _say(f"job {job.job_id} is pending: {reason}")
    return reason or told


def _say(text: str) -> None:
    click.echo(f"fray: {text}", err=True)


def run_command_line(argv: Sequence[str]) -> int:
    """Run one command line and return the exit code."""
    try:
        with unwrapped_interrupts():
            result: Any = cli.main(args=list(argv), prog_name="fray", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        with contextlib.suppress(OSError):
            _say("interrupted")
        return _interrupted(error.__cause__ if isinstance(error, click.Abort) else error)
    except MarinError as error:
        _say(str(error))
        return REFUSED
    return int(result or 0)


def main() -> None:
    """The entry point of the console script."""
    sys.exit(run_command_line(sys.argv[1:]))
