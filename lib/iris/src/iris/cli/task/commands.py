"""`iris task`: its commands, and `iris task top`."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import clear, duration, echo, echo_json, output, say, table, terminal_width
from iris.cli.params import JOB, NumberRange
from iris.cli.task.exec import exec_command
from iris.cli.usage import latest, processor_time, size
from rigging.cli.groups import SuggestingGroup

if TYPE_CHECKING:
    from iris.client import IrisClient, TaskStatus

_MOST_JOBS: Final = 100
_COLUMNS: Final = (
    "task", "worker", "cores", "cpu time", "memory", "mean", "peak", "disk", "processes", "runs for",
)  # fmt: skip


@click.group(cls=SuggestingGroup)
def task() -> None:
    """Watch the resource use of tasks, and run commands inside them."""


task.add_command(exec_command)


@task.command()
@click.argument("name", type=JOB, metavar="[JOB]", required=False)
@click.option("--once", is_flag=True, help="Show the table once and exit.")
@click.option("--interval", type=NumberRange(min=0.2, max=3600), default=2.0, show_default=True, metavar="SECONDS")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, once.")
@pass_context
def top(context: CliContext, name: str | None, once: bool, interval: float, as_json: bool) -> None:
    """Show the running tasks of JOB and its child jobs (default: all your jobs), busiest first, until Ctrl-C.

    Workers measure every five seconds. Without a terminal, each update is a table below the last one.
    """
    with context.client() as client:
        prefix = _prefix(client, name)
        if once or as_json:
            tasks = _running(client, prefix)
            _show(tasks, context.now_ms(), as_json)
            return
        show_until_interrupted(lambda: lines(_running(client, prefix), context.now_ms()), interval)


def show_until_interrupted(look: Callable[[], list[str]], interval_s: float) -> None:
    """Show the result of `look` repeatedly: on a terminal in place of the last one, else below it.

    Args:
        look: Returns the lines to show.
        interval_s: Seconds between two updates.
    """
    is_terminal = sys.stdout.isatty()
    while True:
        found = look()
        if is_terminal:
            clear()
        for line in found:
            echo(line)
        if not is_terminal:
            sys.stdout.flush()
        time.sleep(interval_s)


def lines(tasks: list["TaskStatus"], now_ms: int) -> list[str]:
    """Return the table of running tasks.

    Args:
        tasks: The tasks, in display order.
        now_ms: The time in Unix ms.
    """
    if not tasks:
        return ["no task is running"]
    return table(_COLUMNS, [_row(item, now_ms) for item in tasks], width=terminal_width())


def _row(item: "TaskStatus", now_ms: int) -> list[str]:
    used = latest(item)
    runs = duration(item.duration_seconds(now_ms))
    if used is None:
        return [item.task_id, item.worker_id, *("-",) * 7, runs]
    return [
        item.task_id,
        item.worker_id,
        f"{used.cpu_cores:.2f}",
        processor_time(used.cpu_seconds),
        size(used.memory_bytes),
        size(used.memory_mean_bytes),
        size(used.memory_peak_bytes),
        size(used.disk_bytes),
        str(used.processes or "-"),
        runs,
    ]


def _show(tasks: list["TaskStatus"], now_ms: int, as_json: bool) -> None:
    if as_json:
        echo_json([item.to_json() for item in tasks])
    elif not tasks:
        say("no task is running")
    else:
        output(False).rows(_COLUMNS, [_row(item, now_ms) for item in tasks], [])


def _prefix(client: "IrisClient", name: str | None) -> str:
    from iris.cli.job.ids import find_job

    return client.full_name_prefix() if name is None else find_job(client, name).job_id


def _running(client: "IrisClient", prefix: str) -> list["TaskStatus"]:
    from iris.cluster.types import JobState, TaskState

    jobs = client.list_jobs(prefix=prefix, states=[JobState.RUNNING], limit=_MOST_JOBS)
    tasks = [item for job in jobs for item in client.list_tasks(job.job_id) if item.state is TaskState.RUNNING]
    return sorted(tasks, key=_busy, reverse=True)


def _busy(item: "TaskStatus") -> tuple[float, int]:
    used = latest(item)
    return (0.0, 0) if used is None else (used.cpu_cores, used.memory_bytes)
