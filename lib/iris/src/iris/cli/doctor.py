"""`iris doctor`: checks this machine and the chosen cluster, with a remedy for each problem."""

import os
import time
from typing import TYPE_CHECKING, Final

import click

from iris.cli.context import CliContext, pass_context
from rigging.cli.doctor import Finding, State, gather, judge, judge_clock, show
from rigging.errors import MarinError

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.types import ClusterStatus

# The controller's clock, in Unix ms.
_CLOCK: Final = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now_ms"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def doctor(context: CliContext, as_json: bool) -> int:
    """Check Python, uv, git, disk, limits, and the cluster: reachability, release, clock, workers.

    Each line is a finding; a problem has a remedy. The exit code is 1 if a check fails. The command starts nothing, and
    sends data only to the cluster.
    """
    from iris.local.state import local_paths
    from iris.python_tools.uv import uv_program

    state = str(local_paths(os.environ).root)
    try:
        uv = uv_program()
    except FileNotFoundError:
        uv = "uv"
    findings = judge(gather({"state": state}, uv))
    try:
        findings += _cluster(context)
    except MarinError as error:
        text, _, remedy = str(error).partition("; ")
        remedy = remedy or "iris cluster list shows the clusters you have"
        findings.append(Finding("cluster", State.FAILURE, text, remedy))
    return show(findings, as_json)


def _cluster(context: CliContext) -> list[Finding]:
    target = context.running(context.target())
    if target is None:
        return [Finding("cluster", State.OK, "your local cluster is not running; the next job starts it")]
    with context.connect(target) as client:
        return judge_cluster(client.cluster_status(), client.address) + _clock(client)


def _clock(client: "IrisClient") -> list[Finding]:
    before = time.time()
    try:
        result = client.query(_CLOCK)
    except MarinError:  # not everybody may ask
        return []
    middle = (before + time.time()) / 2
    return [judge_clock(int(str(result.rows[0][0])) - int(middle * 1000), "the controller's")]


def judge_cluster(status: "ClusterStatus", address: str) -> list[Finding]:
    """Return the findings about a cluster that answers."""
    from iris import __version__

    found = [Finding("cluster", State.OK, f"{address} answers")]
    if status.version != __version__:
        text = f"the controller is iris {status.version}, this is iris {__version__}"
        found.append(Finding("release", State.WARNING, text, "use one release; one older or newer still works"))
    usable = [worker for worker in status.workers if worker.state == "connected"]
    if not usable:
        why = status.worker_trouble or f"none of {len(status.workers)} workers takes tasks"
        found.append(Finding("workers", State.FAILURE, why, "iris cluster status shows why"))
    else:
        found.append(Finding("workers", State.OK, f"{len(usable)} of {len(status.workers)} take tasks"))
    if status.disk_warning:
        found.append(Finding("controller", State.WARNING, status.disk_warning, "free space on the controller's disk"))
    return found
