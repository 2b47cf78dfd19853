"""`iris job update`: change limits of live jobs."""

from typing import Any

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import say
from iris.cli.params import LIVE_JOB, MEMORY, SECONDS_OR_ZERO, SIZE, NumberRange


@click.command()
@click.argument("names", type=LIVE_JOB, metavar="JOB...", nargs=-1, required=True)
@click.option("--priority", "priority_band", type=click.Choice(["production", "interactive", "batch"]), help="Band.")
@click.option("--timeout", type=SECONDS_OR_ZERO, metavar="SECONDS", help="Fail the job if it runs longer; 0: no limit.")
@click.option("--scheduling-timeout", type=SECONDS_OR_ZERO, metavar="SECONDS", help="Limit of the wait; 0: no limit.")
@click.option("--max-retries", "max_retries_failure", type=click.IntRange(min=0), help="Retries of a failed task.")
@click.option("--cpu", type=NumberRange(min=0, max=1e6), help="Cores of each task, before the start.")
@click.option("--memory", type=MEMORY, help="Memory of each task, before the start.")
@click.option("--disk", type=SIZE, help="Scratch space of each task, before the start.")
@pass_context
def update(context: CliContext, /, names: tuple[str, ...], **options: Any) -> None:
    """Change limits of live jobs. Omitted options stay unchanged."""
    from iris.cli.job.ids import find_job

    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        raise click.UsageError("nothing to change; give e.g. --priority batch or --timeout 3600")
    told = ", ".join(f"{name.removesuffix('_band').replace('_', ' ')} {value}" for name, value in given.items())
    with context.client() as client:
        for job_id in [find_job(client, name).job_id for name in names]:
            client.update(job_id, **given)
            say(f"job {job_id} is updated: {told}")
