"""`iris completion`: shell completion of commands, options, and names of jobs, workers and clusters."""

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from iris.cli.context import CliContext
from rigging.cli.completing import completion_command
from rigging.errors import MarinError

if TYPE_CHECKING:
    from iris.client import IrisClient

completion = completion_command("iris")

_PATIENCE_S: Final = 1.0
_MOST: Final = 200


def job_names(ctx: click.Context, typed: str, *, live: bool) -> list[str]:
    """Return ids of jobs that begin with the typed text, without "/user/" for the user's own jobs.

    Args:
        ctx: The command line so far.
        typed: The beginning.
        live: Only jobs that have not ended.
    """

    def look(client: "IrisClient") -> Iterable[str]:
        from iris.cluster.types import JobState

        states = [state for state in JobState if not (live and state.is_terminal)]
        below = "" if typed.startswith("/") else f"/{client.user}"
        for status in client.list_jobs(
            prefix=f"{below}/{typed}*" if below else f"{typed}*", states=states, limit=_MOST
        ):
            yield status.job_id.removeprefix(f"{below}/" if below else "")

    return _beginning(typed, _ask(ctx, look))


def worker_names(ctx: click.Context, typed: str) -> list[str]:
    """Return the names of known workers that begin with the typed text."""
    look = lambda client: [item.worker_id for item in client.cluster_status(all_workers=True).workers]  # noqa: E731
    return _beginning(typed, _ask(ctx, look))


def cluster_names(typed: str) -> list[str]:
    """Return the names of clusters that begin with the typed text."""
    from rigging.config_discovery import list_cluster_configs

    return _beginning(typed, ["local", *list_cluster_configs()])


def _beginning(typed: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(typed)})


def _ask(ctx: click.Context, look: "Callable[[IrisClient], Iterable[str]]") -> list[str]:
    """Return the chosen cluster's answer; empty if it is not running, or does not answer within a second."""
    context, root = ctx.find_object(CliContext), ctx.find_root().params
    with contextlib.suppress(MarinError, OSError):
        if context is not None:
            for option in ("cluster", "config", "controller_url", "token_file", "insecure"):
                setattr(context, option, root.get(option))
            unheard: list[str] = []
            target = context.running(context.target(on_warning=unheard.append))
            if target is not None:
                with context.connect(target, patience=_PATIENCE_S) as client:
                    return list(look(client))
    return []
