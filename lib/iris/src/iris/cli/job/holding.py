"""`iris job hold|release|requeue`: keep waiting jobs from starting, and start jobs again."""

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import say
from iris.cli.params import JOB, LIVE_JOB


@click.command()
@click.argument("names", type=LIVE_JOB, metavar="JOB...", nargs=-1, required=True)
@pass_context
def hold(context: CliContext, names: tuple[str, ...]) -> None:
    """Hold jobs: start none of their tasks until `iris job release`. Running tasks continue; retries wait."""
    from iris.cli.job.ids import find_job

    with context.client() as client:
        for status in [find_job(client, name) for name in names]:
            before = client.hold(status.job_id)
            state = f"already {before}" if before else "held"
            waiting = "it" if status.state.word == "pending" else "its waiting tasks and retries"
            say(f"job {status.job_id} is {state}; `iris job release {status.job_id}` lets {waiting} start")


@click.command()
@click.argument("names", type=LIVE_JOB, metavar="JOB...", nargs=-1, required=True)
@pass_context
def release(context: CliContext, names: tuple[str, ...]) -> None:
    """Let held jobs start."""
    from iris.cli.job.ids import find_job

    with context.client() as client:
        for job_id in [find_job(client, name).job_id for name in names]:
            before = client.release(job_id)
            say(f"job {job_id} is released (it was {before})" if before else f"job {job_id} was not held")


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
