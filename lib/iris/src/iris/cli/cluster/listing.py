"""`iris cluster list`: the clusters that `--cluster` can name, and whether they answer."""

import os
from pathlib import Path
from typing import Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import output
from rigging.config_discovery import list_cluster_configs
from rigging.errors import MarinError
from rigging.process.parallel import map_in_threads

_PATIENCE_S: Final = 2.0


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def list_command(context: CliContext, as_json: bool) -> None:
    """List your local cluster, those that you started and those of config files: address, and whether it answers
    within 2 s. Starts no cluster.
    """
    from iris.local.saved_clusters import started_clusters

    places: dict[str, Path | None] = {"local": None, **started_clusters(os.environ), **list_cluster_configs()}
    found = map_in_threads(lambda item: _look(context, *item), list(places.items()))
    columns = ("cluster", "state", "address", "version", "workers", "file")
    rows = [[str(record[column] or "-") for column in columns] for record in found]
    output(as_json).rows(columns, rows, found, [record["because"] for record in found])


def _look(context: CliContext, name: str, file: Path | None) -> dict[str, Any]:
    """Return the description of a cluster, with errors as text."""
    from iris.client.connection.discovery import find_cluster
    from iris.local.saved_clusters import is_starting, saved_cluster

    record: dict[str, Any] = {"cluster": name, "state": "", "address": "", "version": "", "workers": None}
    record |= {"file": str(file or ""), "because": ""}
    try:
        saved = saved_cluster(os.environ, name)
        if saved is not None and not saved.address:
            state = "starting" if is_starting(os.environ, name) else "interrupted"
            because = "" if state == "starting" else f"`iris cluster start {saved.file}` goes on; `... stop` deletes it"
            return {**record, "state": state, "because": because}
        target = context.running(find_cluster(name, local=context.local_cluster()))
        if target is None:
            return {**record, "state": "not running"}
        with context.connect(target, patience=_PATIENCE_S) as client:
            try:
                status = client.cluster_status()
            finally:
                record["address"] = client.address
    except MarinError as error:
        return {**record, "state": "unreachable" if error.retryable else "unusable", "because": str(error)}
    return {**record, "state": "answers", "version": status.version, "workers": len(status.workers)}
