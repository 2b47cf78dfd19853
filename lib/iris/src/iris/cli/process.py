"""`iris process`: status, logs and profiles of running processes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, echo_data, echo_json, moment, output, say
from iris.cli.params import JOB
from iris.cli.task.exec import find_task
from iris.cli.usage import processor_time, size
from rigging.cli.groups import SuggestingGroup

if TYPE_CHECKING:
    from iris.client import IrisClient

_COLUMNS = ("pid", "memory", "cpu time", "threads", "files", "started", "command")
_TARGET = click.argument("target", type=JOB, metavar="TARGET")
_SECONDS = click.option(
    "--seconds", type=click.IntRange(1, 600), default=10, show_default=True, help="Duration of the profile."
)
_PLACE = click.option("--output", "place", type=click.Path(path_type=Path), metavar="FILE", help="File to write.")


@click.group(cls=SuggestingGroup)
def process() -> None:
    """Look at the processes of a task, a worker or the controller.

    TARGET is a task, a job with one task, worker/NAME or controller. Who may read a task's logs may look at it; workers
    and the controller are for admins.
    """


@process.command()
@_TARGET
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def status(context: CliContext, target: str, as_json: bool) -> None:
    """Show the processes of TARGET: command, memory, processor time, threads, open files and start."""
    with context.client() as client:
        found: list[dict[str, Any]] = json.loads(_inspect(client, target, "status"))
    if as_json:
        echo_json(found)
    else:
        output(False).rows(_COLUMNS, [_row(item, context.now_ms()) for item in found], [])


@process.command()
@_TARGET
@pass_context
def logs(context: CliContext, target: str) -> None:
    """Print the end of TARGET's own log (of a task: like `iris job logs`)."""
    with context.client() as client:
        if target == "controller" or target.startswith("worker/"):
            _write(_inspect(client, target, "logs"), None)
            return
        for line in client.read_logs(find_task(client, target)):
            echo(line.text)


@process.group(cls=SuggestingGroup)
def profile() -> None:
    """Profile a Python process of TARGET by py-spy and memray: install marin-iris[profile] on its host."""


@profile.command()
@_TARGET
@pass_context
def threads(context: CliContext, target: str) -> None:
    """Print the stack of each thread."""
    with context.client() as client:
        _write(_inspect(client, target, "threads"), None)


@profile.command()
@_TARGET
@_SECONDS
@_PLACE
@pass_context
def cpu(context: CliContext, target: str, seconds: int, place: Path | None) -> None:
    """Write a flame graph of processor time (SVG)."""
    with context.client() as client:
        _write(_inspect(client, target, "cpu", seconds), place or Path("cpu.svg"))


@profile.command()
@_TARGET
@_SECONDS
@_PLACE
@pass_context
def mem(context: CliContext, target: str, seconds: int, place: Path | None) -> None:
    """Write a flame graph of allocated memory (HTML). The process needs memray in its environment, its host gdb."""
    with context.client() as client:
        _write(_inspect(client, target, "mem", seconds), place or Path("memory.html"))


def _inspect(client: "IrisClient", target: str, what: str, seconds: int = 1) -> bytes:
    from iris.client.tasks.inspection import inspect

    name = target if target == "controller" or target.startswith("worker/") else find_task(client, target)
    return b"".join(inspect(client.connection, name, what, seconds))


def _write(data: bytes, place: Path | None) -> None:
    if place is None:
        echo_data(data.decode(errors="replace"))
        return
    place.write_bytes(data)
    say(f"wrote {place}")


def _row(item: dict[str, Any], now_ms: int) -> list[str]:
    return [
        str(item["pid"]),
        size(item["memory_bytes"]),
        processor_time(item["cpu_seconds"]),
        str(item["threads"]),
        "-" if item["open_files"] is None else str(item["open_files"]),
        moment(item["started_at_ms"], now_ms),
        item["command"],
    ]
