"""A cluster from start to stop on the test server of Google's APIs; its machines are processes on loopback."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rigging.timing import ExponentialBackoff
from support.google.machines import RunningMachines, alone
from support.google.server import GoogleServer
from support.iris.controller_process import fixed_port
from support.iris.host_cluster import fake_devices
from support.rigging.gcs_server import GcsServer

CONTROLLER: Final = "lab-controller"
_FILE: Final = """
platform: {{gcp: {{project_id: p}}}}
controller: {{gcp: {{zone: us-central1-a, port: {port}}}, worker_lost_after: 5}}
storage: {{remote_state_dir: "gs://state/lab", disk_reserve: 0}}
defaults: {{autoscaler: {{evaluation_interval: 1s, scale_down_delay: 3s}}}}
tpu_pools:
  v5e:
    family: v5e
    zones: [europe-west4-b, us-west4-a]
    base_priority: 20
    resources: {{cpu: 2, ram: 1GB, disk: 1GB, capacity_type: spot}}
    slice_template: {{gcp: {{runtime_version: v2-alpha-tpuv5-lite}}}}
    sizes: {{16: {{max_slices: 2}}}}
"""
# The first attempt runs until its host is lost.
_COMMAND: Final = 'case "$IRIS_ATTEMPT_ID" in *:0) sleep 600;; esac; echo "trained by $IRIS_ATTEMPT_ID"'
RUN: Final = ("job", "run", "--no-wait", "--no-workspace", "--tpu", "v5litepod-16", "--", "bash", "-c", _COMMAND)


def until(condition: Callable[[], bool], deadline_s: float = 120) -> None:
    """Wait until a condition holds."""
    assert ExponentialBackoff(initial=0.1, maximum=1.0).wait_until(condition, deadline_s)


def begin(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    """Start a command of iris."""
    return subprocess.Popen(
        [sys.executable, "-m", "iris.cli.main", *words],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def iris(environment: dict[str, str], *words: str) -> str:
    """Run a command of iris, which must succeed. Return its output."""
    process = begin(environment, *words)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


@dataclass(frozen=True)
class Story:
    """An operator at the test server, whose cluster `lab` has its machines on this machine."""

    google: GoogleServer
    running: RunningMachines
    file: Path
    environment: dict[str, str]

    def iris(self, *words: str) -> str:
        """Run a command, which must succeed. Return its output."""
        return iris(self.environment, *words)

    def slices(self) -> list[str]:
        """Return the names of the nodes that exist."""
        return sorted({name.rpartition("/")[2] for name in list(self.google.cloud.nodes)})

    def zones_tried(self) -> list[str]:
        """Return the zones of the requests for a node, in order."""
        requests = list(self.google.requests)
        return [each.split("/")[5] for each in requests if each.startswith("POST") and each.endswith("/nodes")]


@contextmanager
def cloud_story(root: Path) -> Iterator[Story]:
    """Yield a story whose files are below a folder."""
    cache = {name: os.environ[name] for name in ("UV_CACHE_DIR",) if name in os.environ}
    hosts = {"UV_CACHE_DIR": os.path.expanduser("~/.cache/uv"), **cache, "UV_PYTHON": sys.executable}
    hosts["IRIS_DEVICE_DIR"] = str(fake_devices(root / "dev"))
    with GcsServer() as gcs, GoogleServer(addresses=lambda _: "127.0.0.1") as google:
        gcs.create_bucket("state")
        operator = {**gcs.environment(), "IRIS_GOOGLE_ENDPOINT": google.address}
        with RunningMachines(google, root, alone, {**hosts, **operator}) as running:
            file = root / "lab.yaml"
            file.write_text(_FILE.format(port=fixed_port()))
            yield Story(google, running, file, {**operator, "IRIS_STATE_DIR": str(root / "operator")})


@dataclass(frozen=True)
class Evidence:
    """The facts about a finished story, from the test server and the controller.

    Args:
        owners: The owner labels of all that was to be created.
        booted: How often each machine began to run, by name and number.
        rows: The slices in the controller's records.
        needed: How many slices the story needed.
        left: Machines that run or are listed after the stop.
    """

    owners: Set[str]
    booted: Mapping[tuple[str, int], int]
    rows: Set[str]
    needed: int
    left: Set[str] = frozenset()


def faults(seen: Evidence) -> list[str]:
    """Return what was doubled, orphaned or left in a story. Pure."""
    slices = sorted({name for name, _ in seen.booted} - {CONTROLLER})
    found = [f"{name} host {number} booted {times} times" for (name, number), times in seen.booted.items() if times > 1]
    if len(slices) != seen.needed:
        found.append(f"{len(slices)} slices booted where {seen.needed} were needed: {', '.join(slices)}")
    found += [f"{name} has no row" for name in slices if name not in seen.rows]
    found += [f"{name} is left after the stop" for name in sorted(seen.left)]
    if len(seen.owners) != 1 or not all(owner.startswith("lab-") for owner in seen.owners):
        found.append(f"owner labels: {', '.join(sorted(seen.owners))}")
    return found
