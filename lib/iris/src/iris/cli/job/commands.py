"""`iris job run|list|logs|wait|stop|summary|bug-report`; `status` is `summary`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import duration, moment, output, say, table
from iris.cli.params import JOB, LISTED, NAME
from iris.cli.usage import latest, processor_time, size, totals
from iris.domain.states import JobState, TaskState
from rigging.cli.groups import LazyGroup
from rigging.errors import Denied
from rigging.text.printable import printable_line

if TYPE_CHECKING:
    from iris.client import IrisClient, JobStatus, TaskStatus

_STATES: Final = tuple(state.word for state in JobState)
_MOST_LISTED: Final = int(LISTED.max or 0)
_CHILDREN_LIMIT: Final = 1000
_MOST_TASKS: Final = 500


_STOP: Final = ("iris.cli.job.stop", "stop", "Stop jobs and their child jobs, and wait until they are gone.")
_PLACES: Final = {
    "run": ("iris.cli.job.run", "run", "Run a command as a job with the files of this project."),
    "logs": ("iris.cli.job.logs", "logs", "Print the output of a job or one of its tasks."),
    "wait": ("iris.cli.job.wait", "wait", "Wait until jobs have ended."),
    "bug-report": ("iris.cli.job.bug_report", "bug_report", "Write an archive with everything known about a job."),
    "hold": ("iris.cli.job.holding", "hold", "Start no task of jobs until they are released."),
    "release": ("iris.cli.job.holding", "release", "Let held jobs start."),
    "requeue": ("iris.cli.job.holding", "requeue", "Run jobs again as they were submitted."),
    "update": ("iris.cli.job.update", "update", "Change limits of live jobs."),
    "stop": _STOP,
    "kill": _STOP,
}


@click.group(cls=LazyGroup, places=_PLACES)
def job() -> None:
    """Run commands as jobs; list, follow and stop them.

    JOB is a job's id, with or without "/user/" in front. A task is JOB/INDEX.
    """


@job.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--state", "states", type=click.Choice(_STATES), multiple=True, help="Only jobs in this state.")
@click.option("--user", type=NAME, help="Only this user's jobs.")
@click.option("--prefix", type=NAME, help="Only jobs with this name prefix, e.g. /ann/sweep.")
@click.option("-n", "--limit", type=LISTED, default=50, show_default=True, help="Maximum number of jobs.")
@pass_context
def list_command(
    context: CliContext, as_json: bool, states: tuple[str, ...], user: str | None, prefix: str | None, limit: int
) -> None:
    """List jobs, newest first, with children below their parents."""

    with context.client() as client:
        wanted = [JobState[word.upper()] for word in states]
        found = client.list_jobs(prefix=_start(client, user, prefix), states=wanted, limit=min(limit + 1, _MOST_LISTED))
    jobs = found[:limit]
    if len(found) > limit:
        say(f"shown are the newest {limit}; -n {_MOST_LISTED} lists more, and --prefix, --user and --state choose jobs")
    ordered = in_tree_order(jobs)
    now = context.now_ms()
    has_children = any(status.descendant_counts for status in jobs)
    rows = [
        [
            "  " * depth + status.job_id,
            status.state.word,
            moment(status.submitted_at_ms, now),
            duration(status.duration_seconds(now)),
            tasks_text(status),
            *([counts_text(status.descendant_counts)] if has_children else []),
            status.command,
        ]
        for depth, status in ordered
    ]
    columns = ("job", "state", "submitted", "duration", "tasks", *(["child jobs"] if has_children else []), "command")
    if not rows and not as_json:
        say("no jobs")
    output(as_json).rows(
        columns, rows, [status.to_json() for _, status in ordered], [_note(status) for _, status in ordered]
    )


def _start(client: "IrisClient", user: str | None, prefix: str | None) -> str:
    """Return what the ids of the jobs of --user and --prefix begin with, in the form of `list_jobs`."""
    if prefix is None:
        return f"/{user}" if user else ""
    return f"{prefix if prefix.startswith('/') else f'/{user or client.user}/{prefix}'}*"


def _note(status: "JobStatus") -> str:
    """Return why a job waits, or a note on its end."""
    waits = waits_text(status)
    return f"waits: {waits}" if waits else status.error


def waits_text(status: "JobStatus") -> str:
    """Return why a job waits, and its place in the queue: "needs 4 cores; ... (3rd of 12 in its band)"."""
    place = status.queue_place
    if not place:
        return status.pending_reason
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{status.pending_reason} ({place}{ending} of {status.queue_length} in its band)".lstrip()


def in_tree_order(jobs: Sequence["JobStatus"]) -> list[tuple[int, "JobStatus"]]:
    """Return jobs with their depth, in the given order, but each child right below its parent (oldest child first)."""
    by_id = {status.job_id: status for status in jobs}
    children: dict[str, list[JobStatus]] = {}
    for status in jobs:
        if status.parent_id in by_id:
            children.setdefault(status.parent_id, []).append(status)
    ordered: list[tuple[int, JobStatus]] = []
    # A stack, not recursion: the depth of a tree is the users' choice.
    stack = [(0, status) for status in reversed(jobs) if status.parent_id not in by_id]
    while stack:
        depth, status = stack.pop()
        ordered.append((depth, status))
        below = sorted(children.get(status.job_id, []), key=lambda child: child.submitted_at_ms, reverse=True)
        stack.extend((depth + 1, child) for child in below)
    return ordered


def tasks_text(status: "JobStatus") -> str:
    """Return the number of tasks by state, e.g. "3 running, 1 pending"; only the number if all agree with the job."""
    words = [state.word for state, count in status.task_counts.items() if count]
    return counts_text(status.task_counts) if words not in ([], [status.state.word]) else str(status.replicas)


def counts_text(counts: "Mapping[JobState, int] | Mapping[TaskState, int]") -> str:
    """Return counts by state as text, e.g. "3 running, 1 pending"; "-" for none."""
    return ", ".join(f"{count} {state.word}" for state, count in counts.items() if count) or "-"


@job.command()
@click.argument("name", type=JOB, metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def summary(context: CliContext, name: str, as_json: bool) -> None:
    """Show a job: its tasks, their attempts and causes of ends, why it waits, its child jobs."""
    with context.client() as client:
        status, tasks = _look(client, name, 0 if as_json else _MOST_TASKS)
        below = client.list_jobs(prefix=status.job_id, limit=_CHILDREN_LIMIT)
    tree = in_tree_order([status, *(child for child in below if child.job_id != status.job_id)])
    record = {**_nested(tree), "tasks": [task.to_json() for task in tasks]} if as_json else {}
    lines = [] if as_json else _summary_lines(status, tasks, tree, context.now_ms())
    output(as_json).record(lines, record)


job.add_command(summary, "status")


def _look(client: "IrisClient", name: str, limit: int) -> "tuple[JobStatus, list[TaskStatus]]":
    """Return a job and its tasks, at most `limit`, as in `IrisClient.list_tasks`. Another user's job, which a pending
    reason may name, comes from the list, without tasks.

    Raises:
        NotFound: The job does not exist. Denied: The job belongs to another user, and the list does not contain it.
    """
    from iris.cli.job.ids import find_job

    try:
        status = find_job(client, name)
        return status, client.list_tasks(status.job_id, limit)
    except Denied:
        for status in client.list_jobs(prefix=name.rstrip("/"), limit=_CHILDREN_LIMIT) if name.startswith("/") else ():
            if status.job_id == name.rstrip("/"):
                return status, []
        raise


def _used(task: "TaskStatus") -> tuple[str, ...]:
    used = latest(task)
    if used is None:
        return ("-", "-", "-")
    return processor_time(used.cpu_seconds), size(used.memory_mean_bytes), size(used.memory_peak_bytes)


def _nested(tree: Sequence[tuple[int, "JobStatus"]]) -> dict[str, Any]:
    """Return the tree as nested records. The first entry is the root."""
    path: list[dict[str, Any]] = []
    for depth, status in tree:
        record: dict[str, Any] = {**status.to_json(), "children": []}
        del path[depth:]
        if path:
            path[-1]["children"].append(record)
        path.append(record)
    return path[0]


def _summary_lines(
    status: "JobStatus", tasks: Sequence["TaskStatus"], tree: Sequence[tuple[int, "JobStatus"]], now: int
) -> list[str]:
    facts = [
        ("job", status.job_id),
        ("state", status.state.word),
        ("command", printable_line(status.command)),
        ("description", printable_line(status.description)),
        ("submitted", moment(status.submitted_at_ms, now)),
        ("started", moment(status.started_at_ms, now)),
        ("finished", moment(status.finished_at_ms, now)),
        ("duration", duration(status.duration_seconds(now))),
        ("waits", waits_text(status)),
        ("failed", f"{status.failed_tasks} of {status.replicas} tasks" if status.failed_tasks else ""),
        ("error", status.error),
        ("used", totals(tasks)),
        ("decided by", status.deciding_task_id if status.state.word != "succeeded" else ""),
    ]
    lines = [f"{label + ':':<11} {text}" for label, text in facts if text and text != "-"]
    is_measured = any(task.usage for task in tasks)
    rows = [
        [
            task.task_id.rpartition("/")[2],
            task.state.word,
            str(task.attempt) if task.attempt >= 0 else "-",
            task.worker_id or "-",
            duration(task.duration_seconds(now)),
            *(_used(task) if is_measured else ()),
            task.error or task.pending_reason,
        ]
        for task in tasks
    ]
    used = ("cpu time", "memory mean", "memory peak") if is_measured else ()
    lines += (
        ["", *table(("task", "state", "attempt", "worker", "duration", *used, "error or reason"), rows)] if rows else []
    )
    more = status.replicas - len(tasks) if len(tasks) >= _MOST_TASKS else 0
    lines += [f"{more} more tasks ({counts_text(status.task_counts)} in all); --json lists them"] if more > 0 else []
    causes = [f"  task {task.task_id.rpartition('/')[2]}: {cause}" for task in tasks for cause in task.causes]
    lines += ["", "ended attempts:", *causes] if causes else []
    silent = [f"  {attempt}" for task in tasks for attempt in task.silent]
    lines += ["", "out of reach:", *silent] if silent else []
    children = [f"{'  ' * depth}{child.job_id}  {child.state.word}" for depth, child in tree[1:]]
    return lines + (["", "child jobs:", *children] if children else [])
