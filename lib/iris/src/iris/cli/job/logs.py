"""`iris job logs`: the output of a job and its child jobs, or a part of it."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import duration, say
from iris.cli.params import COUNT, JOB, MOMENT, NAME, SECONDS_OR_ZERO
from iris.rpc.logfilter import ANY_ATTEMPT, LEVELS
from rigging.errors import NotFound

_MOST_JOBS: Final = 1000

if TYPE_CHECKING:
    from iris.client import IrisClient, JobStatus


@click.command()
@click.argument("name", type=JOB, metavar="JOB|TASK")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the job ends.")
@click.option("--grep", type=NAME, metavar="REGEX", help="Only lines with a match of this expression.")
@click.option(
    "--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only log lines of this level and above."
)
@click.option("--task", type=click.IntRange(min=0), metavar="N", help="Only this task of the job, no child jobs.")
@click.option("--attempt", type=click.IntRange(min=0), metavar="N", help="Only this attempt of each task.")
@click.option("--since", type=MOMENT, metavar="T", help="Only lines printed since: 2026-05-03T14:00, or 10m ago.")
@click.option("--until", type=MOMENT, metavar="T", help="Only lines printed until then, in the form of --since.")
@click.option("--since-seconds", type=SECONDS_OR_ZERO, metavar="N", help="Only lines printed in the last N seconds.")
@click.option(
    "--since-ms", type=click.IntRange(min=0), metavar="N", help="Only lines printed since this time in Unix ms."
)
@click.option("--max-lines", type=COUNT, metavar="N", help="Only the last N lines.")
@click.option("--no-tail", is_flag=True, help="With --max-lines: the first N lines.")
@click.option(
    "--include-children/--no-include-children", " /--no-children", "include_children", default=True,
    show_default=True, help="Show the output of child jobs too.",
)  # fmt: skip
@pass_context
def logs(context: CliContext, /, name: str, **options: Any) -> None:
    """Print the output of a job or one of its tasks, from all attempts.

    With several tasks, each line names its task. Lines of a retried task also name the attempt.
    """
    from iris.cli.job.ids import find_job_or_task
    from iris.client.logs.printer import LogPrinter

    with context.client() as client:
        status, found = find_job_or_task(client, name)
        found = _task_id(status, found, options["task"])
        one = options["attempt"]
        selection = _selection(options, context.now_ms())
        if one is not None and not options["follow"]:
            _check_attempt(client, status, found, one, with_children=selection["include_children"])
        if (ahead := selection["since"] - context.now_ms() / 1000) > 0:
            say(f"the requested time is {duration(ahead)} in the future, so no lines match")
        printer = LogPrinter(
            status.job_id,
            prefix_own=found == status.job_id and status.replicas > 1,
            name_attempts=one is None,
            retried=one is None and _was_retried(client, status, found),
        )
        lines = client.read_logs(found, **selection)
        for line in lines:
            printer.write(line)
        printer.finish()


def _task_id(status: "JobStatus", found: str, index: int | None) -> str:
    if index is None:
        return found
    wanted = f"{status.job_id}/{index}"
    if index >= status.replicas or found not in (status.job_id, wanted):
        raise NotFound(f"{found} has no task {index}; the tasks of {status.job_id} are 0 to {status.replicas - 1}")
    return wanted


def _check_attempt(client: "IrisClient", status: "JobStatus", found: str, attempt: int, *, with_children: bool) -> None:
    """Raise NotFound if no selected task has an attempt with this number."""
    jobs = [status.job_id]
    if with_children and found == status.job_id:
        jobs += [job.job_id for job in client.list_jobs(prefix=found, limit=_MOST_JOBS) if job.job_id != found]
    tasks = [task for job in jobs for task in client.list_tasks(job) if found in (status.job_id, task.task_id)]
    last = max((task.attempt for task in tasks), default=-1)
    if attempt > last:
        there = (
            f"its attempts are 0 to {last}"
            if last > 0
            else "its only attempt is 0"
            if last == 0
            else "no attempt has started"
        )
        raise NotFound(f"{found} has no attempt {attempt}; {there}")


def _was_retried(client: "IrisClient", status: "JobStatus", found: str) -> bool:
    """Return whether a selected task was retried."""
    tasks = client.list_tasks(status.job_id)
    return any(
        len(task.causes) + (not task.state.is_terminal) > 1
        for task in tasks
        if found in (status.job_id, task.task_id) and task.causes
    )


def _selection(options: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the arguments for `IrisClient.read_logs`."""
    since: datetime | None = options["since"]
    until: datetime | None = options["until"]
    seconds = options["since_seconds"]
    begins = (
        (options["since_ms"] or 0) / 1000,
        now_ms / 1000 - seconds if seconds is not None else 0,
        since.timestamp() if since is not None else 0,
    )
    return {
        "since": max(begins),
        "max_lines": options["max_lines"] or 0,
        "from_start": options["no_tail"] or not options["max_lines"],
        "follow": options["follow"],
        "include_children": options["include_children"] and options["task"] is None,
        "grep": options["grep"] or "",
        "level": options["level"] or "",
        "until": until.timestamp() if until is not None else 0,
        "attempt": ANY_ATTEMPT if options["attempt"] is None else options["attempt"],
    }
