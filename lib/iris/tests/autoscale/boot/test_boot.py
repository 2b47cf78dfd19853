"""From a cluster file to workers: the controller creates a slice, and its hosts install iris and join."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from iris.autoscale.boot.release import CONSTRAINTS, Release, own_release, publish
from iris.autoscale.boot.script import install_script, worker_script
from iris.autoscale.port import SliceOrder
from iris.autoscale.rules import Platform
from iris.client import IrisClient
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.domain.resources import Resources
from iris.domain.scale_groups import ScaleGroup
from iris.python_tools.uv import uv_program
from rigging.timing import ExponentialBackoff
from support.google.cloud import Machine
from support.google.machines import RunningMachines, alone
from support.google.metadata import MetadataServer
from support.google.server import GoogleServer
from support.iris.host_cluster import fake_devices
from support.rigging.gcs_server import GcsServer

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FILE = """
name: boot
platform: {{gcp: {{project_id: p}}}}
storage: {{remote_state_dir: "gs://state/boot", disk_reserve: 0}}
controller: {{state_dir: {state}, worker_lost_after: 5}}
defaults:
  autoscaler: {{evaluation_interval: 1s}}
  worker: {{env: {{NOTE: "it's $5"}}}}
  task_env: {{GREETING: hello}}
scale_groups:
  - name: pod
    accelerator: {{type: tpu, variant: v4-16}}
    cpu: 2
    memory: 1GB
    disk: 1GB
    zone: us-central2-b
    min_slices: 1
    capacity_type: spot
    attributes: {{rack: "4 a"}}
"""


@contextmanager
def controller(tmp_path: Path, environment: dict[str, str]) -> Iterator[IrisClient]:
    file, state = tmp_path / "boot.yaml", tmp_path / "state"
    file.write_text(FILE.format(state=state))
    command = [sys.executable, "-m", "iris.cli.main", "cluster", "controller", "serve", "--config", str(file)]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with IrisClient.remote(address, token_file=str(state / "user-token")) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def uv_here() -> dict[str, str]:
    """What lets uv on a machine use this one's cache and Python."""
    cache = os.environ.get("UV_CACHE_DIR", os.path.expanduser("~/.cache/uv"))
    return {"UV_CACHE_DIR": cache, "UV_PYTHON": sys.executable}


def until(condition: Callable[[], bool]) -> None:
    assert ExponentialBackoff(initial=0.1, maximum=1.0).wait_until(condition, 120)


def test_hosts_of_a_slice_install_iris_join_and_leave_together(tmp_path: Path) -> None:
    with GcsServer() as gcs, GoogleServer() as google:
        gcs.create_bucket("state")
        own = gcs.environment() | uv_here() | {"IRIS_DEVICE_DIR": str(fake_devices(tmp_path / "dev"))}
        with (
            RunningMachines(google, tmp_path, alone, own) as running,
            controller(tmp_path, {**gcs.environment(), "IRIS_GOOGLE_ENDPOINT": google.address}) as client,
        ):
            until(lambda: any(name.endswith("/boot-pod-0") for name in list(google.cloud.machines)))
            machines = google.machines("boot-pod-0")
            for machine in machines:
                machine.metadata.wait_for_guest("iris", "phase", "joined")
            until(lambda: len(client.cluster_status().workers) == 2)
            for number, worker in enumerate(client.cluster_status().workers):
                assert worker.worker_id == f"boot-pod-0-w{number}"
                assert (worker.cpu, worker.memory_bytes) == (2, 2**30)
                expected = {"tpu-name": "boot-pod-0", "tpu-worker-id": str(number), "device-variant": "v4-16"}
                expected |= {"scale-group": "pod", "slice": "boot-pod-0", "rack": "4 a", "preemptible": "true"}
                assert expected.items() <= dict(worker.attributes).items()
            told = Entrypoint.from_command("sh", "-c", 'test "$GREETING" = hello')
            assert client.submit(told, "told", ResourceSpec(cpu=1, memory="64MB")).wait(60).state is JobState.SUCCEEDED
            assert_repeats(machines[0], tmp_path / "boot-pod-0-0", own)
            # A notice to one host ends the slice: all of its hosts are drained, and Google is asked to delete it.
            google.warn("boot-pod-0", host=1)
            until(lambda: any(call.startswith("DELETE") and call.endswith("/boot-pod-0") for call in google.requests))
            (worker,) = client.workers(["boot-pod-0-w0"])
            assert worker.cordon_reason == "host 1 of 2 lost"
            assert not running.processes.keys() & set(machines)


def assert_repeats(machine: Machine, home: Path, environment: dict[str, str]) -> None:
    """A second run of the script changes nothing, and what is secret is in private files."""
    top = home / "iris"
    before = {path: path.stat().st_mtime_ns for path in top.iterdir()}
    again = subprocess.run(
        ["bash", str(home / "startup-script")],
        env={**os.environ, **environment, "HOME": str(home), "IRIS_BOOT_DIR": str(top)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout == "iris: this script already runs\n"
    assert {path: path.stat().st_mtime_ns for path in top.iterdir()} == before
    assert machine.guest["iris", "phase"] == "joined"
    assert machine.guest["iris", "warning"].startswith("tasks can read the cluster's secrets in gs://state: let")
    token = (top / "worker" / "join-token").read_text().strip()
    assert token.startswith("iris-join-v1.")
    for secret in (top / "environment", top / "worker" / "join-token"):
        assert secret.stat().st_mode & 0o777 == 0o600
    assert (
        top / "environment"
    ).read_text() == 'NOTE="it\'s \\$5"\nIRIS_TASK_VARIABLES="{\\"GREETING\\": \\"hello\\"}"\n'
    shown = b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert token.encode() not in shown + machine.output


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for directories of its own")
def test_the_worker_is_a_service_that_a_reboot_leaves_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's directories are a mount namespace's, and its systemd a program that notes its arguments."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n[ "$1" != is-active ]\n')
    (bin_dir / "systemctl").chmod(0o755)
    with GcsServer() as gcs, MetadataServer(attributes={"enable-guest-attributes": "TRUE"}) as metadata:
        gcs.create_bucket("state")
        for name, value in {**gcs.environment(), **uv_here(), "GCE_METADATA_HOST": metadata.address}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", str(bin_dir), prepend=os.pathsep)
        order = SliceOrder("s-0", ScaleGroup("cpus", Resources(2000, 2**30, 2**30)), "the-token")
        stored = publish(own_release(), "gs://state/lab")
        (tmp_path / "script").write_text(worker_script(order, stored, "10.0.0.2:7077", Platform()))
        places = "/opt /var/lib /etc/systemd /run"
        inner = f"""
            for place in {places}; do mkdir -p $place && mount -t tmpfs none $place; done
            mkdir -p /run/systemd/system && bash {tmp_path}/script && touch /var/lib/iris-worker/credential.json &&
            cat /etc/systemd/system/iris-worker.service >{tmp_path}/unit && bash {tmp_path}/script &&
            cmp /etc/systemd/system/iris-worker.service {tmp_path}/unit && ls /var/lib/iris-worker"""
        done = subprocess.run(["unshare", "--mount", "sh", "-c", inner], capture_output=True, text=True, check=True)
    assert done.stdout == "iris: installing\niris: starting\niris: starting\ncredential.json\n", "the token is gone"
    unit = (tmp_path / "unit").read_text()
    assert f"ExecStart=/opt/iris/{stored.name}/venv/bin/iris worker start --controller 10.0.0.2:7077" in unit
    assert "--platform gce --slice s-0 --cpu 2" in unit
    assert "the-token" not in unit
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if line != "--version"]
    assert calls == ["is-active --quiet iris-worker", "daemon-reload", "enable --now iris-worker"] * 2


def test_an_install_that_fails_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GcsServer() as gcs, MetadataServer(attributes={"enable-guest-attributes": "TRUE"}) as metadata:
        gcs.create_bucket("state")
        for name, value in gcs.environment().items():
            monkeypatch.setenv(name, value)
        release = Release("r", "3.12", {CONSTRAINTS: b""}, Path(uv_program()))
        stored = replace(publish(release, "gs://state/a b"), wheels=("marin_iris.whl",))
        (tmp_path / "script").write_text(install_script(stored, {}) + "echo done\n")
        environment = {**os.environ, "GCE_METADATA_HOST": metadata.address, "IRIS_BOOT_DIR": str(tmp_path / "iris")}
        script = subprocess.Popen(
            ["bash", str(tmp_path / "script")], env=environment, stdout=subprocess.PIPE, text=True, process_group=0
        )
        try:
            assert script.stdout is not None
            lines = [script.stdout.readline() for _ in range(3)]
            words = "marin_iris.whl: curl: (22) The requested URL returned error: 404"
            told = f"failed: cannot install iris r: {words} ; next try in 5 s"
            assert lines == ["iris: installing\n", f"{words}\n", f"iris: {told}\n"]
            metadata.wait_for_guest("iris", "phase", told)
        finally:
            os.killpg(script.pid, signal.SIGKILL)
            script.wait()
