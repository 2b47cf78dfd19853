"""From `cluster start` to `cluster stop`: machines are processes on loopback that run their startup scripts."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from iris.client import IrisClient
from iris.client.connection.discovery import find_cluster
from iris.cluster.types import JobState
from rigging.timing import ExponentialBackoff
from support.google.cloud import Machine
from support.google.machines import RunningMachines, startup_script
from support.google.server import GoogleServer
from support.iris.controller_process import fixed_port
from support.iris.ssh_hosts import ssh_hosts, why_not
from support.rigging.gcs_server import GcsServer

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(420)]

FILE: Final = """
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
BY_SSH: Final = """
platform: {{manual: {{}}}}
controller: {{manual: {{host: "{first}", port: {port}}}, worker_lost_after: 10}}
storage: {{remote_state_dir: {remote}, disk_reserve: 0}}
defaults:
  ssh: {{user: {user}, key_file: {key}, known_hosts_file: {known}}}
  autoscaler: {{evaluation_interval: 1s, scale_down_delay: 2s}}
scale_groups:
  - {{name: one, cpu: 1, memory: 256MB, disk: 1GB, slice_template: {{manual: {{hosts: ["{second}"]}}}}}}
"""
# The first attempt runs until its host is lost.
COMMAND: Final = 'case "$IRIS_ATTEMPT_ID" in *:0) sleep 600;; esac; echo "trained by $IRIS_ATTEMPT_ID"'


def alone(machine: Machine, home: Path) -> Sequence[str]:
    """The startup script with processes of its own, which end together, like those of a machine."""
    own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if os.geteuid() == 0 else []
    return ["env", f"IRIS_BOOT_DIR={home}/iris", *own, *startup_script(machine, home)]


def iris(environment: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "iris.cli.main", *words]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Story:
    """An operator at the test server, whose clusters' machines run on this machine."""

    def __init__(self, google: GoogleServer, running: RunningMachines, file: Path, environment: dict[str, str]) -> None:
        self.google, self.running, self.file, self.environment = google, running, file, environment

    def iris(self, *words: str) -> str:
        return iris(self.environment, *words)

    def slices(self) -> list[str]:
        return sorted({name.rpartition("/")[2] for name in self.google.cloud.nodes})


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    cache = {name: os.environ[name] for name in ("UV_CACHE_DIR",) if name in os.environ}
    hosts = {"UV_CACHE_DIR": os.path.expanduser("~/.cache/uv"), **cache, "UV_PYTHON": sys.executable}
    with GcsServer() as gcs, GoogleServer(addresses=lambda _: "127.0.0.1") as google:
        gcs.create_bucket("state")
        operator = {**gcs.environment(), "IRIS_GOOGLE_ENDPOINT": google.address}
        with RunningMachines(google, tmp_path, alone, {**hosts, **operator}) as running:
            file = tmp_path / "lab.yaml"
            with socket.create_server(("127.0.0.1", 0)) as listening:
                port = listening.getsockname()[1]
            file.write_text(FILE.format(port=port))
            yield Story(google, running, file, {**operator, "IRIS_STATE_DIR": str(tmp_path / "operator")})


def until(condition: Callable[[], bool]) -> None:
    assert ExponentialBackoff(initial=0.1, maximum=1.0).wait_until(condition, 120)


def test_a_gang_from_nothing_through_a_stock_out_and_a_spot_loss_to_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", story.environment["IRIS_STATE_DIR"])
    story.google.zone("europe-west4-b").stock_out = True
    assert "cluster lab is ready at 127.0.0.1:" in story.iris("cluster", "start", str(story.file))
    run = ("job", "run", "--no-wait", "--no-workspace", "--tpu", "v5litepod-16", "--", "bash", "-c", COMMAND)
    story.iris("--cluster=lab", *run)
    with IrisClient.of(find_cluster("lab")) as client:
        (job,) = client.list_jobs()

        def slices() -> list[str]:
            return [task.worker_id.rpartition("-w")[0] for task in client.list_tasks(job.job_id)]

        until(lambda: client.status(job.job_id).state is JobState.RUNNING)
        tried = [
            request.split("/")[5]
            for request in story.google.requests
            if request.startswith("POST") and request.endswith("/nodes")
        ]
        assert list(dict.fromkeys(tried)) == ["europe-west4-b", "us-west4-a"]
        (first,) = story.slices()
        assert slices() == [first] * 4
        assert "is ready again at" in story.iris("--cluster=lab", "cluster", "controller", "restart")
        until(lambda: sum(worker.connected for worker in client.cluster_status().workers) == 4)
        assert {task.attempt for task in client.list_tasks(job.job_id)} == {0}, "no task has noticed"
        story.google.preempt(first, host=2)
        until(lambda: client.status(job.job_id).state is JobState.SUCCEEDED)
        assert first not in slices()
        until(lambda: not story.slices())
    assert "cluster lab has no machines" in story.iris("--cluster=lab", "cluster", "stop", "--yes")
    cloud = story.google.cloud
    assert (cloud.nodes, cloud.queued, cloud.instances) == ({}, {}, {})
    until(lambda: not story.running.processes)


def test_a_controller_on_a_host_by_ssh_comes_restarts_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := why_not():
        pytest.skip(reason)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "operator"))
    kept = {key: value for key, value in os.environ.items() if key.startswith(("UV_", "SSL_", "PATH", "HTTP"))}
    kept |= {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", os.path.expanduser("~/.cache/uv"))}
    with ssh_hosts(tmp_path, 2, kept | {"UV_PYTHON": sys.executable}) as hosts:
        (first, second), settings, file = hosts.addresses, hosts.settings, tmp_path / "attic.yaml"
        names = {"user": settings.user, "key": settings.key_file, "known": settings.known_hosts_file}
        places = {"first": first, "second": second, "port": fixed_port(), "remote": tmp_path / "remote"}
        file.write_text(BY_SSH.format(**names, **places))
        assert "cluster attic is ready at 127.0.0.1:" in iris({}, "cluster", "start", str(file))
        iris({}, "--cluster=attic", "cluster", "create-slice", "one")
        until(lambda: (hosts.hosts[1].files / "claim").exists())
        assert "serving on 0.0.0.0" in iris({}, "--cluster=attic", "cluster", "vm", "logs", "controller")
        assert "is ready again at" in iris({}, "--cluster=attic", "cluster", "controller", "restart")
        assert "cluster attic has no machines" in iris({}, "--cluster=attic", "cluster", "stop", "--yes", "--force")
        assert [host.files.with_name("iris-host-controller").exists() for host in hosts.hosts] == [False, False]
        assert [(host.files / "claim").exists() for host in hosts.hosts] == [False, False]
