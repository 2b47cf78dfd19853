"""Groups of commands."""

import difflib

import click


class SuggestingGroup(click.Group):
    """A group that answers a typo with the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = self.list_commands(ctx)
            nearest = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are: {', '.join(known)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)
