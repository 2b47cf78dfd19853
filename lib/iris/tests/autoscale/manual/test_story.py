"""From a cluster file to a job on a host that is reached by ssh, and back: the host is left as it was."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from iris.client import IrisClient
from iris.cluster.types import CoschedulingConfig, Entrypoint, ResourceSpec
from support.iris.controller_process import fixed_port
from support.iris.host_cluster import until
from support.iris.ssh_hosts import SshHosts, ssh_hosts, why_not

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FILE = """
name: attic
platform: {{manual: {{}}}}
storage: {{disk_reserve: 0}}
controller: {{state_dir: {state}, port: {port}, worker_lost_after: 10}}
defaults:
  ssh: {{user: {user}, key_file: {key}, known_hosts_file: {known}}}
  autoscaler: {{evaluation_interval: 1s, scale_down_delay: 2s}}
  worker: {{env: {{NOTE: "it's $$5"}}}}
  task_env: {{GREETING: hello}}
scale_groups:
  - name: pair
    hosts_per_slice: 2
    cpu: 1
    memory: 256MB
    disk: 1GB
    slice_template: {{manual: {{hosts: ["{first}", "{second}"]}}}}
"""


@contextmanager
def controller(tmp_path: Path, hosts: SshHosts, port: int) -> Iterator[IrisClient]:
    file, state, settings = tmp_path / "attic.yaml", tmp_path / "state", hosts.settings
    first, second = hosts.addresses
    file.write_text(
        FILE.format(
            state=state,
            port=port,
            user=settings.user,
            key=settings.key_file,
            known=settings.known_hosts_file,
            first=first,
            second=second,
        )
    )
    command = [sys.executable, "-m", "iris.cli.main", "cluster", "controller", "serve", "--config", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with IrisClient.remote(address, token_file=str(state / "user-token")) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_a_gang_runs_on_hosts_that_had_nothing_and_leaves_only_caches(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    kept = {key: value for key, value in os.environ.items() if key.startswith(("UV_", "SSL_", "PATH", "HTTP"))}
    kept |= {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", os.path.expanduser("~/.cache/uv"))}
    with ssh_hosts(tmp_path, 2, kept | {"UV_PYTHON": sys.executable}) as hosts:
        port = fixed_port()
        with controller(tmp_path, hosts, port) as client:
            command = Entrypoint.from_command("sh", "-c", 'echo "$GREETING" && exec sleep 2')
            job = client.submit(
                command,
                "gang",
                ResourceSpec(cpu=1, memory="64MB"),
                replicas=2,
                coscheduling=CoschedulingConfig("slice"),
            )
            until(lambda: job.state_only().name == "RUNNING", "it runs", 120)
        with controller(tmp_path, hosts, port) as client:
            job = client.job(job.job_id)
            job.wait(60)
            workers = client.cluster_status().workers
            assert {worker.worker_id for worker in workers} == {"attic-pair-0-w0", "attic-pair-0-w1"}
            pid = tmp_path / "pid"
            stays = Entrypoint.from_command("sh", "-c", f"trap '' TERM; echo $$ > {pid}; sleep 600; sleep 600")
            job = client.submit(stays, "stays", ResourceSpec(cpu=1, memory="64MB"))
            until(lambda: pid.exists() and pid.read_text(), "it runs")
            task = psutil.Process(int(pid.read_text()))
            client.operator.delete_slice("attic-pair-0")
            until(lambda: not task.is_running(), "the task ends with its slice", 60)
            job.terminate()
            until(lambda: not any((host.files / "claim").exists() for host in hosts.hosts), "idle hosts are left", 60)
            for host in hosts.hosts:
                assert {path.name for path in host.files.iterdir()} <= {"bin", "releases", "python"}
                until(lambda host=host: not host.processes(), "a guardian ends just after its worker", 5)
            until(lambda: client.operator.slices()[-1].state == "gone", "the lists say it is gone")
            name = client.operator.create_slice("pair")
            until(lambda: all((host.files / "claim").exists() for host in hosts.hosts), f"{name} begins")
            assert client.operator.end_cluster() == ([], [])
            assert not any((host.files / "claim").exists() for host in hosts.hosts)
            until(lambda: not any(host.processes() for host in hosts.hosts), "nothing runs there", 5)
