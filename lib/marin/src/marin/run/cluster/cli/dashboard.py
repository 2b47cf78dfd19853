"""`cluster dashboard`: a tunnel that lasts as long as the command, and the token for a cluster that requires one."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import click

from marin.run.cluster import ray_commands
from marin.run.cluster.cli.context import ClusterFile, cluster_option, dry_run_option, load_cluster_file, say, show
from marin.run.cluster.execute import read_on_head
from marin.run.cluster.user_token import store_token, wants_token
from marin.run.cluster_target import DASHBOARD_PORT
from marin.run.connection import open_connection
from rigging.errors import MarinError, Unavailable

_LOOK_SECONDS = 0.5


@click.command("dashboard")
@cluster_option
@click.option("-p", "--port", type=click.IntRange(1, 65535), default=DASHBOARD_PORT, show_default=True)
@dry_run_option
def dashboard(cluster: str, port: int, dry_run: bool) -> None:
    """Open a tunnel to the dashboard and the Jobs API until Ctrl-C. Store the cluster's token in your token file."""
    found = load_cluster_file(cluster)
    if dry_run:
        token = [ray_commands.execute(found.shown, ray_commands.READ_TOKEN)] if wants_token(found.config) else []
        show(*token, ray_commands.dashboard(found.shown, port))
        return
    with ending_on_signals():
        try:
            take_token(found)
        except MarinError as error:
            say(f"cannot fetch its token: {error}")
        with open_connection(found.target, port=port) as address:
            say(f"dashboard: {address}  (export RAY_ADDRESS={address}); Ctrl-C ends the connection")
            while _answers(port):
                time.sleep(_LOOK_SECONDS)
    raise Unavailable(f"the connection to {found.name} ended by itself")


def take_token(found: ClusterFile) -> None:
    """Store a cluster's token where the user's Ray looks for it, if the cluster requires one. Raise MarinError."""
    if not wants_token(found.config):
        return
    _, value = read_on_head(found.shown, ray_commands.READ_TOKEN)
    said = store_token(value.strip(), os.environ, Path.home())
    if said:
        say(said)


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Context manager: SIGTERM and a closed terminal end this process and its connections like Ctrl-C."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _answers(port: int) -> bool:
    import socket

    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False
