"""`iris cluster dashboard`: the cluster's pages in a browser."""

import html
import os
import shlex
import sys
import webbrowser
from pathlib import Path
from typing import Final

import click

from iris.cli.cluster.elsewhere import cluster_elsewhere, tunnel_to
from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, say


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on, if the pages are not yet served."
)
@click.option(
    "--allow-changes", is_flag=True, help="Let the pages stop jobs and cordon workers, within your permissions."
)
@click.option("--no-open", is_flag=True, help="Only print the link.")
@click.option("--print", "only_print", is_flag=True, help="Print the link and the command of the ssh tunnel to it.")
@pass_context
def dashboard(context: CliContext, port: int, allow_changes: bool, no_open: bool, only_print: bool) -> None:
    """Open the cluster's pages in a browser.

    The link works once, within ten minutes. The pages listen only on the controller's machine. For a cluster with
    controller.gcp or .manual, the command forwards their port by ssh until Ctrl-C. For others elsewhere, forward the
    port first (ssh -L PORT:127.0.0.1:PORT HOST).
    """
    target = context.target()
    elsewhere = cluster_elsewhere(context)
    with context.connect(target, on_warning=say, on_interrupted=say) as client:
        url, note = client.operator.login_link(port=port, allow_changes=allow_changes)
    if note:
        say(note)
    echo(url)
    tunnel = tunnel_to(elsewhere, url) if elsewhere is not None else []
    if only_print:
        echo(shlex.join(tunnel))
        return
    if not no_open and sys.stdout.isatty():
        from iris.local.state import local_paths

        try:
            open_privately(url, local_paths(os.environ).root)
        except OSError as error:  # a full disk, say
            say(f"no browser was opened: {error}; open the link above")
    if tunnel:
        say(f"forwarding the port until Ctrl-C: {shlex.join(tunnel)}")
        context.execute(["/usr/bin/env", *tunnel], os.environ)


_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={url}">
<meta name="referrer" content="no-referrer">
<title>iris</title>
<a href="{url}">Open the cluster's pages</a>
"""


def open_privately(url: str, folder: Path) -> None:
    """Open a link in the user's browser, through a file that only this user can read and that redirects to it.

    Every user of the machine can see the browser's command line, and could use a single-use link first. So the command
    line contains only the file's name.

    Args:
        url: The link.
        folder: The folder for the file, created if missing. The previous file is overwritten.

    Raises:
        OSError: The file cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "dashboard-link.html"
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(_PAGE.format(url=html.escape(url)))
    webbrowser.open(path.absolute().as_uri())
