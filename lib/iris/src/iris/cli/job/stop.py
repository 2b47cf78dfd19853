"""`iris job stop`: stop jobs by name, or the live jobs of a user."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import listed, say
from iris.cli.params import LISTED, LIVE_JOB, NAME
from iris.domain.ids import JobId, parent_of
from iris.domain.states import JobState
from rigging.cli.asking import confirmed
from rigging.errors import MarinError

if TYPE_CHECKING:
    from iris.client import IrisClient

_LIVE: Final = tuple(state.word for state in JobState if not state.is_terminal)
_MOST: Final = int(LISTED.max or 0)


@click.command()
@click.argument("names", type=LIVE_JOB, metavar="[JOB]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All live jobs of yours, or of --user.")
@click.option("--user", type=NAME, help="The live jobs of this user.")
@click.option("--state", "states", type=click.Choice(_LIVE), multiple=True, help="The jobs in this state.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--include-children/--no-include-children", default=True, show_default=True, help="Stop child jobs too.")
@pass_context
def stop(
    context: CliContext,
    names: tuple[str, ...],
    every: bool,
    user: str | None,
    states: tuple[str, ...],
    yes: bool,
    include_children: bool,
) -> None:
    """Stop jobs and their child jobs, and wait until they have ended.

    For an unknown name the command reports an error and fails, but still stops the other jobs. Without names, options
    choose your jobs, or those of a user; the command then asks first.
    """
    from iris.cli.job.ids import find_jobs

    is_chosen = every or user is not None or bool(states)
    if bool(names) == is_chosen:
        raise click.UsageError("name the jobs to stop, or choose them with --all, --user or --state")
    with context.client() as client:
        if is_chosen:
            owner = user or client.user
            live = _live_jobs(client, owner, states, with_children=not include_children)
            if not live:
                say(f"no {' or '.join(states) or 'live'} job of {owner}")
                return
            question = f"stop {len(live)} job{'s' if len(live) > 1 else ''} of {owner}: {listed(live)}?"
            confirmed(context, question, yes)
            _stop(client, live, include_children, [])
            return
        found, denied, wrong = find_jobs(client, names)
        for status in found:
            if status.is_terminal:
                say(f"job {status.job_id} has ended already ({status.state.word})")
        # What may not be read is asked for, too: the refusal then says what was wanted.
        live = [*(status.job_id for status in found if not status.is_terminal), *denied]
        _stop(client, live, include_children, wrong)


def _live_jobs(client: "IrisClient", owner: str, states: Sequence[str], *, with_children: bool) -> list[str]:
    """Return a user's jobs in these states; by default without child jobs that stop with their parents."""
    wanted = [JobState[word.upper()] for word in states or _LIVE]
    found = client.list_jobs(prefix=f"/{owner}", states=wanted, limit=_MOST)
    if len(found) == _MOST:
        say(f"{owner} has more jobs; these are the newest {_MOST:,}")
    ids = dict.fromkeys(JobId(status.job_id) for status in found)
    return [one for one in ids if with_children or not _has_above(one, ids)]


def _has_above(job_id: JobId, ids: Collection[JobId]) -> bool:
    above = parent_of(job_id)
    while above is not None and above not in ids:
        above = parent_of(above)
    return above is not None


def _stop(client: "IrisClient", live: Sequence[str], include_children: bool, wrong: list[MarinError]) -> None:
    """Stop jobs and print each result. Raise the last error."""
    from iris.cli.job.stopping import await_stops

    results = client.stop_many(live, "stopped by `iris job stop`", include_children=include_children)
    for job_id, result, line in zip(live, results, await_stops(client, results), strict=True):
        if not isinstance(result, MarinError):  # those come below
            say(f"job {job_id}{line}")
    wrong += [result for result in results if isinstance(result, MarinError)]
    for error in wrong[:-1]:
        say(str(error))
    if wrong:
        raise wrong[-1]
