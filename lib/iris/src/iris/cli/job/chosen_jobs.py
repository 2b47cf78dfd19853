"""Chooses jobs by name, user or state, for commands that take several."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext
from iris.cli.output import listed, say
from iris.cli.params import LISTED, LIVE_JOB, NAME
from iris.domain.ids import JobId, parent_of
from iris.domain.states import JobState
from rigging.cli.asking import confirmed

if TYPE_CHECKING:
    from iris.client import IrisClient

_LIVE: Final = tuple(state.word for state in JobState if not state.is_terminal)
_MOST: Final = int(LISTED.max or 0)


def choose_jobs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with [JOB]... and the options of `JobChoice`."""
    for decorate in (
        click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        click.option("--state", "states", type=click.Choice(_LIVE), multiple=True, help="The jobs in this state."),
        click.option("--user", type=NAME, help="The live jobs of this user."),
        click.option("--all", "every", is_flag=True, help="All live jobs of yours, or of --user."),
        click.argument("names", type=LIVE_JOB, metavar="[JOB]...", nargs=-1),
    ):
        command = decorate(command)
    return command


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The arguments that choose jobs."""

    names: tuple[str, ...]
    every: bool
    user: str | None
    states: tuple[str, ...]
    yes: bool

    def check(self, verb: str) -> None:
        """Raise UsageError if no job is chosen, or both names and options are given."""
        if bool(self.names) == (self.every or self.user is not None or bool(self.states)):
            raise click.UsageError(f"name the jobs to {verb}, or choose them with --all, --user or --state")

    def find(self, context: CliContext, client: "IrisClient", verb: str, *, with_children: bool) -> list[str]:
        """Return the ids of the live jobs that the options choose. Ask the user first.

        Raises:
            InvalidRequest: The command cannot ask, because stdin is not a terminal. click.Abort: The user declined.

        Args:
            context: Asks.
            client: The cluster's client.
            verb: What becomes of the jobs, e.g. "stop".
            with_children: Also child jobs of chosen jobs.
        """
        owner = self.user or client.user
        live = _live_jobs(client, owner, self.states, with_children=with_children)
        if not live:
            say(f"no {' or '.join(self.states) or 'live'} job of {owner}")
            return []
        question = f"{verb} {len(live)} job{'s' if len(live) > 1 else ''} of {owner}: {listed(live)}?"
        confirmed(context, question, self.yes)
        return live


def _live_jobs(client: "IrisClient", owner: str, states: Sequence[str], *, with_children: bool) -> list[str]:
    """Return a user's jobs in these states; by default without child jobs of other ones."""
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
