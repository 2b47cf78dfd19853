"""Groups of commands: a typo is answered with the nearest one; those of `marin` are imported as they are used."""

from __future__ import annotations

import difflib
import importlib
from typing import Final

import click

# Module, attribute and one line of help of each command.
COMMANDS: Final = {
    "runs": ("marin.cli.commands.runs", "runs", "List runs, the newest first."),
    "show": ("marin.cli.commands.show", "show", "Show a run, or a step's output: config, version, status, files."),
    "logs": ("marin.cli.commands.logs", "logs", "Print a step's log and its error; -f follows it."),
    "graph": ("marin.cli.commands.graph", "graph", "Show the steps of a run as a tree, or draw them."),
    "diff": ("marin.cli.commands.diff", "diff", "Compare two runs: steps, values, code."),
    "browser": ("marin.cli.commands.browser", "browser", "Serve pages with runs, steps, logs and files."),
    "completion": ("marin.cli.commands.completion", "completion", "Print the setup of a shell's completion."),
    "locks": ("marin.cli.commands.locks", "locks", "List leases of steps; clear those of holders that are gone."),
    "gc": ("marin.cli.commands.gc", "gc", "List outputs that no run refers to; with --delete remove them."),
    "lint": ("marin.cli.commands.lint", "lint", "Find values in a script's steps that do not count, or name a region."),
}


class SuggestingGroup(click.Group):
    """A group that answers a typo with the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the words begin with."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            nearest = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are: {', '.join(known)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """The commands of `marin`, imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; None when there is none of that name."""
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in sorted(COMMANDS.items())])
