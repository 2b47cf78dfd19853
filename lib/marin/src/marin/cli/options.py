"""Options and parameter types that several commands share."""

from __future__ import annotations

import re
from typing import Any, Final

import click
from click.shell_completion import CompletionItem


class Name(click.types.StringParamType):
    """Non-empty text. An empty argument is an error, not a missing one."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty value."""
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("it is empty; give a name, or omit the option.", param, ctx)
        return text


class StoredName(Name):
    """The name of a run, of a step's output, or of either. The shell completes it from storage.

    Args:
        runs: Whether runs are allowed.
        steps: Whether outputs of steps are allowed.
    """

    def __init__(self, *, runs: bool = False, steps: bool = False) -> None:
        self.runs = runs
        self.steps = steps

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the stored names that begin with the typed text; none if storage cannot be read."""
        del param
        from marin.cli.reading.names import names_beginning

        found = names_beginning(incomplete, ctx.params.get("prefix"), runs=self.runs, steps=self.steps)
        return [CompletionItem(name) for name in found]


class Span(click.types.StringParamType):
    """A time span: seconds, or a number with s, m, h or d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the span in seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        found = _SPAN.fullmatch(value.strip())
        if found is None:
            self.fail(f"{value!r} is not a time span; use seconds, or 90s, 10m, 2h, 3d.", param, ctx)
        return float(found[1]) * _SECONDS[found[2] or "s"]


_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

NAME: Final = Name()
RUN: Final = StoredName(runs=True)
STEP: Final = StoredName(steps=True)
RUN_OR_STEP: Final = StoredName(runs=True, steps=True)
SPAN: Final = Span()

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
prefix_option = click.option(
    "--prefix", type=NAME, metavar="PREFIX", help="Storage root.  [default: MARIN_PREFIX, else like experiments]"
)
runs_option = click.option(
    "--runs", "runs_at", type=NAME, metavar="DIR", help="Directory of run records.  [default: PREFIX/experiments]"
)
