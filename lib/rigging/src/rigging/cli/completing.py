"""The command that prints a program's completion script for a shell."""

import click
from click.shell_completion import get_completion_class

_HELP = """Print the completion script of a shell, for its start-up file.

\b
bash:  eval "$({program} completion bash)"      in ~/.bashrc (bash 4.4 or later)
zsh:   eval "$({program} completion zsh)"       in ~/.zshrc
fish:  {program} completion fish | source       in ~/.config/fish/config.fish
"""


def completion_command(program: str) -> click.Command:
    """Return the command `completion` of a program.

    Args:
        program: Its name on the command line.
    """

    @click.command("completion", help=_HELP.format(program=program))
    @click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
    @click.pass_context
    def completion(ctx: click.Context, shell: str) -> None:
        kind = get_completion_class(shell)
        if kind is None:  # only for shells that click does not know
            raise click.UsageError(f"no completion for {shell}")
        click.echo(kind(ctx.find_root().command, {}, program, f"_{program.upper()}_COMPLETE").source())

    return completion
