"""`marin browser`: runs, steps and files in a browser."""

from __future__ import annotations

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, prefix_option, runs_option
from marin.cli.output import say
from marin.recorded.reading.places import runs_directory, storage_root
from rigging.errors import InvalidRequest
from rigging.extras import needing


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Port. If it is taken, use a free one.",
)
@click.option("--host", type=NAME, default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--jobs-url", type=NAME, metavar="URL", help="URL of job pages, up to a job's name.")
@prefix_option
@runs_option
@pass_context
def browser(
    context: CliContext, port: int, host: str, jobs_url: str | None, prefix: str | None, runs_at: str | None
) -> int:
    """Serve read-only pages with the runs, steps, logs and files of a prefix, for one user."""
    del context
    root = storage_root(prefix)
    if root.startswith("memory://"):
        raise InvalidRequest(f"prefix {root!r}: memory:// is visible only to the process that wrote it")
    if jobs_url and not jobs_url.startswith(("http://", "https://", "/")):
        raise InvalidRequest(f"jobs-url {jobs_url!r}: must begin with http://, https:// or /")
    with needing("browser", "marin browser"):
        from marin.browser.command import browse
        from marin.browser.site import make_site
    browse(make_site(root, runs_directory(root, runs_at), jobs_url or ""), port, host, say)
    return exit_codes.OK
