"""`marin doctor`: check whether this machine can run experiments, with a remedy for each problem."""

from __future__ import annotations

import os
import tempfile

import click

from marin.cli.context import CliContext, pass_context
from marin.cli.deciding.storage_health import judge_client, judge_prefix
from marin.cli.options import json_option, prefix_option
from marin.recorded.reading.places import storage_root
from rigging.cli.doctor import Finding, State, gather, judge, show
from rigging.errors import MarinError
from rigging.filesystem import local_path


@click.command()
@prefix_option
@json_option
@pass_context
def doctor(context: CliContext, prefix: str | None, as_json: bool) -> int:
    """Check Python, uv, git, the prefix, disk, limits, versions and the job client.

    Each line is a finding, with a remedy if something is wrong. The exit code is 1 if a check fails. The command
    writes, reads and removes a small file below the prefix, and sends nothing anywhere else. `iris doctor` checks the
    cluster.
    """
    del context
    from marin.cli.reading.storage_health import look_at_prefix

    disks = {"temporary": tempfile.gettempdir()}
    try:
        root = storage_root(prefix)
    except MarinError as error:
        found = [Finding("prefix", State.FAILURE, str(error), "give a path, or a URL such as gs://bucket/experiments")]
    else:
        if (local := local_path(root)) is not None:
            disks["storage"] = local
        is_default = prefix is None and not os.environ.get("MARIN_PREFIX") and root.startswith("/")
        found = judge_prefix(look_at_prefix(root, is_default))
    return show([*judge(gather(disks)), *found, _client()], as_json)


def _client() -> Finding:
    from fray.registry import known_backends, known_specs

    spec = os.environ.get("FRAY_CLIENT", "").strip()
    name = spec.partition("://")[0]
    missing = next((backend.missing() for backend in known_backends() if backend.name == name), None)
    found = judge_client(spec, known_specs(), missing)
    if found.state is State.OK and name == "ray" and not os.environ.get("RAY_ADDRESS"):
        return Finding("client", State.WARNING, f"{found.text}, and RAY_ADDRESS is not set", "set RAY_ADDRESS")
    return found
