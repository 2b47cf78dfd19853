"""From `cluster start` to `cluster stop`: machines are processes on loopback that run their startup scripts."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from iris.client import IrisClient
from iris.client.connection.discovery import find_cluster
from iris.cluster.types import JobState
from support.iris.cloud_story import RUN, Story, cloud_story, iris, until
from support.iris.controller_process import fixed_port
from support.iris.ssh_hosts import ssh_hosts, why_not

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(420)]

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


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with cloud_story(tmp_path) as made:
        yield made


def test_a_gang_from_nothing_through_a_stock_out_and_a_spot_loss_to_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", story.environment["IRIS_STATE_DIR"])
    story.google.zone("europe-west4-b").stock_out = True
    assert "cluster lab is ready at 127.0.0.1:" in story.iris("cluster", "start", str(story.file))
    story.iris("--cluster=lab", *RUN)
    with IrisClient.of(find_cluster("lab")) as client:
        (job,) = client.list_jobs()

        def slices() -> list[str]:
            return [task.worker_id.rpartition("-w")[0] for task in client.list_tasks(job.job_id)]

        until(lambda: client.status(job.job_id).state is JobState.RUNNING)
        assert list(dict.fromkeys(story.zones_tried())) == ["europe-west4-b", "us-west4-a"]
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
