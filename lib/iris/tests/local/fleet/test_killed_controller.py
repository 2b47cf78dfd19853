"""The controller of slices on this machine is killed again and again: nothing is doubled, lost or left."""

import contextlib
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.autoscale.model import SliceState
from iris.client import IrisClient
from iris.client.connection.discovery import local_cluster
from iris.cluster.types import CoschedulingConfig, Entrypoint, JobState, ResourceSpec
from iris.local.fleet.file import prepare_run
from iris.local.start import LocalCluster
from iris.local.state import LocalPaths, lock_holder
from iris.local.stop import kill_cluster
from rigging.errors import MarinError
from support.rigging.processes import is_gone

FILE = """
scale_groups:
  - {name: one, cpu: 2, memory: 2GB, disk: 1GB, min_slices: 1, max_slices: 3}
  - {name: two, cpu: 3, memory: 2GB, disk: 1GB, max_slices: 2, hosts_per_slice: 2}
"""


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[LocalPaths]:
    file = tmp_path / "killed.yaml"
    file.write_text(FILE)
    made = LocalPaths(tmp_path / "state" / "killed")
    prepare_run(made, file, 16)
    yield made
    kill_cluster(made)
    assert not running_hosts(made)


def live_slices(paths: LocalPaths) -> dict[str, SliceState]:
    with closing(sqlite3.connect(f"file:{paths.root}/iris.db?mode=ro", uri=True)) as database:
        found = {name: SliceState(state) for name, state in database.execute("SELECT name, state FROM slices")}
    return {name: state for name, state in found.items() if not state.is_over}


def running_hosts(paths: LocalPaths) -> set[str]:
    return {files.name for files in paths.known_hosts() if lock_holder(files.worker_lock) is not None}


def hosts_of(slices: dict[str, SliceState]) -> set[str]:
    return {f"{name}-w{number}" for name in slices for number in range(2 if name.startswith("two") else 1)}


@pytest.mark.soak
@pytest.mark.timeout(500)
def test_twenty_kills_leave_each_slice_once_and_all_jobs_done(paths: LocalPaths) -> None:
    moments, submitted = random.Random(0), []
    for number in range(20):
        record = LocalCluster(paths).ensure().record
        with IrisClient.of(local_cluster(LocalCluster(paths))) as client:
            killer = threading.Timer(moments.uniform(0, 0.8), os.kill, (record.pid, signal.SIGKILL))
            killer.start()
            command, gang = Entrypoint.from_command("sleep", "0.5"), number % 2
            together = CoschedulingConfig("slice") if gang else None
            need, replicas = ResourceSpec(cpu=3 if gang else 2), 1 + gang
            with contextlib.suppress(MarinError):  # nothing was acknowledged
                job = client.submit(command, f"j{number}", need, replicas=replicas, coscheduling=together)
                submitted.append(job.job_id)
            killer.join()
            eventually(lambda pid=record.pid: is_gone(pid), "the controller is gone")
    assert len(submitted) > 5
    LocalCluster(paths).ensure()
    with IrisClient.of(local_cluster(LocalCluster(paths))) as client:
        for job_id in submitted:
            assert client.job(job_id).wait(timeout=120).state is JobState.SUCCEEDED
        eventually(lambda: set(live_slices(paths).values()) == {SliceState.JOINED}, "every slice has joined")
        eventually(lambda: running_hosts(paths) == hosts_of(live_slices(paths)), "each host runs once, no other does")
        assert {files.name for files in paths.known_hosts()} == running_hosts(paths)
