"""`iris job stop`: stop jobs by name, or the live jobs of a user."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.job.chosen_jobs import JobChoice, choose_jobs
from iris.cli.output import say
from rigging.errors import MarinError

if TYPE_CHECKING:
    from iris.client import IrisClient


@click.command()
@choose_jobs
@click.option("--include-children/--no-include-children", default=True, show_default=True, help="Stop child jobs too.")
@pass_context
def stop(context: CliContext, /, include_children: bool, **chosen: Any) -> None:
    """Stop jobs and their child jobs, and wait until they have ended.

    For an unknown name the command reports an error and fails, but still stops the other jobs. Without names, options
    choose your jobs, or those of a user; the command then asks first.
    """
    from iris.cli.job.ids import find_jobs

    choice = JobChoice(**chosen)
    choice.check("stop")
    with context.client() as client:
        if not choice.names:
            live = choice.find(context, client, "stop", with_children=not include_children)
            _stop(client, live, include_children, [])
            return
        found, denied, wrong = find_jobs(client, choice.names)
        for status in found:
            if status.is_terminal:
                say(f"job {status.job_id} has ended already ({status.state.word})")
        # What may not be read is asked for, too: the refusal then says what was wanted.
        live = [*(status.job_id for status in found if not status.is_terminal), *denied]
        _stop(client, live, include_children, wrong)


def _stop(client: "IrisClient", live: Sequence[str], include_children: bool, wrong: list[MarinError]) -> None:
    """Stop jobs and print each result. Raise the last error."""
    from iris.cli.job.stopping import await_stops

    results = client.stop_many(live, "stopped by `iris job stop`", include_children=include_children) if live else []
    for job_id, result, line in zip(live, results, await_stops(client, results), strict=True):
        if not isinstance(result, MarinError):  # those come below
            say(f"job {job_id}{line}")
    wrong += [result for result in results if isinstance(result, MarinError)]
    for error in wrong[:-1]:
        say(str(error))
    if wrong:
        raise wrong[-1]
