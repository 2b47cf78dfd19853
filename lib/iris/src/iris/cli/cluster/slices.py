"""`iris cluster create-slice|delete-slice`."""

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, say


@click.command("create-slice")
@click.argument("group")
@pass_context
def create_slice(context: CliContext, group: str) -> None:
    """Create a slice of scale group GROUP and print its name. It stays until you delete it or it is lost."""
    with context.client() as client:
        name = client.operator.create_slice(group)
    say(f"slice {name} of {group} is requested; `iris cluster status` shows its state")
    echo(name)


@click.command("delete-slice")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@pass_context
def delete_slice(context: CliContext, names: tuple[str, ...]) -> None:
    """Delete slices. Their tasks are retried elsewhere; below min_slices the autoscaler creates others."""
    with context.client() as client:
        for name in dict.fromkeys(names):
            client.operator.delete_slice(name)
            say(f"slice {name} is being deleted")
