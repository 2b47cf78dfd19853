"""`iris cluster dashboard`: the cluster's pages in a browser."""

import os
import sys

import click

from iris.cli.cluster.opening import open_privately
from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, say


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Where it is to listen, if it does not yet.")
@click.option("--allow-changes", is_flag=True, help="Let the pages stop jobs and cordon workers, as far as you may.")
@click.option("--no-open", is_flag=True, help="Print the link only.")
@pass_context
def dashboard(context: CliContext, port: int, allow_changes: bool, no_open: bool) -> None:
    """Open the cluster's pages in a browser.

    The link is good once, for ten minutes. The pages listen on the controller's machine alone: for a controller
    elsewhere, forward the port first (ssh -L PORT:127.0.0.1:PORT HOST).
    """
    target = context.target()
    with context.connect(target, on_warning=say, on_interrupted=say) as client:
        url, note = client.operator.login_link(port=port, allow_changes=allow_changes)
    if note:
        say(note)
    echo(url)
    if not no_open and sys.stdout.isatty():
        from iris.local.state import local_paths

        try:
            open_privately(url, local_paths(os.environ).root)
        except OSError as error:  # a full disk, say
            say(f"no browser is opened: {error}; open the link above")
