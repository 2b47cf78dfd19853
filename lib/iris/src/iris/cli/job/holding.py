"""`iris job hold|release|requeue`: keep waiting jobs from starting, and start jobs again."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.job.chosen_jobs import JobChoice, choose_jobs
from iris.cli.output import say
from iris.cli.params import JOB
from iris.domain.states import JobState
from rigging.errors import Conflict

if TYPE_CHECKING:
    from iris.client import IrisClient


@click.command()
@choose_jobs
@pass_context
def hold(context: CliContext, /, **chosen: Any) -> None:
    """Hold jobs: start none of their tasks until `iris job release`. Running tasks continue; retries wait."""
    with context.client() as client:
        for job_id, state in _chosen(context, client, "hold", JobChoice(**chosen)):
            try:
                before = client.hold(job_id)
            except Conflict as error:  # it ended since it was chosen
                if chosen["names"]:
                    raise
                say(str(error))
                continue
            held = f"already {before}" if before else "held"
            waiting = "it" if state == JobState.PENDING else "its waiting tasks and retries"
            say(f"job {job_id} is {held}; `iris job release {job_id}` lets {waiting} start")


@click.command()
@choose_jobs
@pass_context
def release(context: CliContext, /, **chosen: Any) -> None:
    """Let held jobs start."""
    with context.client() as client:
        for job_id, _ in _chosen(context, client, "release", JobChoice(**chosen)):
            before = client.release(job_id)
            say(f"job {job_id} is released (it was {before})" if before else f"job {job_id} was not held")


def _chosen(
    context: CliContext, client: "IrisClient", verb: str, choice: JobChoice
) -> "Iterable[tuple[str, JobState]]":
    from iris.cli.job.ids import find_job

    choice.check(verb)
    names = choice.names or choice.find(context, client, verb, with_children=True)
    return [(status.job_id, status.state) for status in (find_job(client, name) for name in names)]


@click.command()
@click.argument("names", type=JOB, metavar="JOB...", nargs=-1, required=True)
@pass_context
def requeue(context: CliContext, names: tuple[str, ...]) -> None:
    """Run jobs again from the beginning, as they were submitted. Live jobs are stopped first, with their child jobs.

    Output of earlier attempts is removed.
    """
    from iris.cli.job.ids import find_job

    with context.client() as client:
        for job_id in [find_job(client, name).job_id for name in names]:
            was = client.requeue(job_id)
            say(f"job {job_id} is queued again (before: {was.word}); follow it with `iris job logs -f {job_id}`")
