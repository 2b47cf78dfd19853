"""`marin completion`: shell completion of commands, options, and names of runs and steps."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_MARIN_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell, for its start-up file.

    \b
    bash:  eval "$(marin completion bash)"      in ~/.bashrc
    zsh:   eval "$(marin completion zsh)"       in ~/.zshrc
    fish:  marin completion fish | source       in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    if kind is None:  # only for shells that click does not know
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "marin", _VARIABLE).source())
