"""Chooses workers by name, attributes or state, for commands that take several."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext
from iris.cli.output import listed
from iris.cli.params import CONDITION, WORKER
from iris.domain.constraints import Constraint, evaluate
from rigging.cli.asking import confirmed
from rigging.errors import NotFound

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.types import WorkerStatus

_STATES: Final = ("connected", "away", "late", "stuck", "cordoned", "copied")


def choose_workers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with [WORKER]... and the options of `WorkerChoice`."""
    for decorate in (
        click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        click.option("--state", "states", type=click.Choice(_STATES), multiple=True, help="Workers in this state."),
        click.option(
            "--worker-attribute",
            "conditions",
            type=CONDITION,
            metavar="CONDITION",
            multiple=True,
            help="Workers with KEY=VALUE, KEY!=VALUE, 'KEY in A,B' or 'KEY>=NUMBER'.",
        ),
        click.option("--all", "every", is_flag=True, help="All known workers."),
        click.argument("names", type=WORKER, metavar="[WORKER]...", nargs=-1),
    ):
        command = decorate(command)
    return command


@dataclass(frozen=True, slots=True)
class WorkerChoice:
    """The arguments that choose workers."""

    names: tuple[str, ...]
    every: bool
    conditions: tuple[Constraint, ...]
    states: tuple[str, ...]
    yes: bool

    def find(self, context: CliContext, client: "IrisClient", verb: str) -> list[str]:
        """Return the ids of the chosen workers. Ask the user first, unless every worker is named.

        Raises:
            UsageError: No worker is chosen, or both names and options are given. NotFound: A worker does not exist.
            InvalidRequest: The command cannot ask, because stdin is not a terminal. click.Abort: The user declined.
        """
        is_chosen = self.every or bool(self.conditions) or bool(self.states)
        if bool(self.names) == is_chosen:
            raise click.UsageError("name the workers, or choose them with --all, --worker-attribute or --state")
        known = client.cluster_status(all_workers=True).workers
        if self.names:
            return [find_worker(known, name) for name in dict.fromkeys(self.names)]
        found = [item.worker_id for item in known if self._takes(item)]
        if not found:
            raise NotFound("no worker matches; `iris cluster worker list --json` shows states and attributes")
        confirmed(context, f"{verb} {len(found)} worker{'s' if len(found) > 1 else ''}: {listed(found)}?", self.yes)
        return found

    def _takes(self, item: "WorkerStatus") -> bool:
        states = item.state.split(", ")
        return evaluate(self.conditions, item.attributes) and (
            not self.states or any(state in states for state in self.states)
        )


def find_worker(known: "Sequence[WorkerStatus]", name: str) -> str:
    """Return the id of a known worker. Raise NotFound with the nearest name."""
    ids = [item.worker_id for item in known]
    if name in ids:
        return name
    near = difflib.get_close_matches(name, ids, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`iris cluster worker list` shows what there is"
    raise NotFound(f"no worker {name!r}; {hint}")
