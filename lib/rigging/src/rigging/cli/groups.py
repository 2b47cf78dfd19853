"""Command groups that suggest the nearest command for a typo, and import commands on use."""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click


class SuggestingGroup(click.Group):
    """A group that suggests the nearest command for a typo."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command named by the first argument."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = self.list_commands(ctx)
            nearest = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are: {', '.join(known)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group that imports each command on use. Commands may also be added as to any group.

    Args:
        places: The module, attribute and one-line help of each command, by name.
        options: Further arguments of `click.Group`.
    """

    def __init__(self, *, places: Mapping[str, tuple[str, str, str]], **options: Any) -> None:
        super().__init__(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, **options)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted({*self._places, *self.commands})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return a command; None if the name is unknown."""
        if name not in self._places:
            return super().get_command(ctx, name)
        module, attribute, _ = self._places[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            texts = {name: text for name, (_, _, text) in self._places.items()}
            texts |= {name: command.get_short_help_str(formatter.width) for name, command in self.commands.items()}
            formatter.write_dl(sorted(texts.items()))
