"""A cluster's config file: what it gives a controller, and how a mistake in it is told."""

from pathlib import Path

import pytest

from iris.controller.cluster_config import parse_cluster_config, read_cluster_config
from iris.controller.config import Durability
from iris.controller.settings import Given, controller_config
from iris.domain.resources import Device
from rigging.errors import InvalidRequest

GOOD = """
controller: {port: 7077, state_dir: /var/iris}
storage:
  remote_state_dir: gs://bucket/iris
  durability: remote
scale_groups:
  - name: v5p-64-b
    accelerator: {type: tpu, variant: v5p-64}
    cpu: 208
    memory: 448GB
    disk: 100GB
    zone: us-east5-b
    preemptible: true
    max_slices: 4
  - {name: cpu, cpu: 8, memory: 32GB, disk: 100GB, max_slices: 10, attributes: {pool: small}}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return path


def test_everything_a_controller_needs_is_read(tmp_path: Path) -> None:
    config = read_cluster_config(written(tmp_path, GOOD))
    assert (config.port, config.state_dir) == (7077, "/var/iris")
    assert (config.remote_state_dir, config.durability) == ("gs://bucket/iris", Durability.REMOTE)
    tpu, cpu = config.scale_groups
    assert tpu.host.device == Device("tpu", "v5p-64", 4)
    assert (tpu.hosts_per_slice, tpu.max_slices, tpu.region) == (8, 4, "us-east5")
    assert cpu.host_attributes == {"preemptible": "false", "pool": "small"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storage: {remote_state_dri: x}", "storage.remote_state_dri is unknown; did you mean 'remote_state_dir'?"),
        ("storage: {durability: eventual}", "storage.durability is 'eventual'; it must be 'local' or 'remote'"),
        ("storage: {durability: remote}", "it must be 'local', as there is no storage.remote_state_dir"),
        ("storage: [1]", "storage is [1]; it must be a mapping of remote_state_dir, durability"),
        ("storag: {}", "storag is unknown; did you mean 'storage'?"),
        ("- 1", "the file is [1]; it must be a mapping"),
        ("controller: {port: 99999}", "controller.port is 99999; it must be a whole number from 0 to 65535"),
        ("scale_groups: [{name: a, cpu: -1}]", "scale_groups[0].cpu is -1; it must be a number of cores above 0"),
        ("scale_groups: [{name: a, cpu: 1, memory: lots}]", "scale_groups[0].memory"),
        (
            "scale_groups: [{name: a, cpu: 1, memory: 1GB, disk: 1GB, accelerator: {type: npu}}]",
            "scale_groups[0].accelerator.type is 'npu'; it must be 'tpu' or 'gpu'",
        ),
        (
            "scale_groups: [{name: a, cpu: 1, memory: 1GB, disk: 1GB, accelerator: {type: tpu, variant: v5p-7}}]",
            "scale_groups[0].accelerator.variant",
        ),
        (
            "scale_groups: [{name: a, cpu: 1, memory: 1GB, disk: 1GB, hosts_per_slice: 3,"
            " accelerator: {type: tpu, variant: v5p-64}}]",
            "scale_groups[0].hosts_per_slice is 3; it must be 8, as a slice of v5p-64 has",
        ),
        (
            "scale_groups: [{name: a, cpu: 1, memory: 1GB, disk: 1GB, min_slices: 3, max_slices: 2}]",
            "scale_groups[0].max_slices is 2; it must be 3 (min_slices) or more",
        ),
        (
            "scale_groups: [{name: a, cpu: 1, memory: 1GB, disk: 1GB}, {name: a, cpu: 1, memory: 1GB, disk: 1GB}]",
            "scale_groups is 'a'; it must be a name that no other scale group has",
        ),
        ("a: [", "cannot read the cluster config"),
    ],
)
def test_a_mistake_is_told_with_file_key_value_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidRequest) as caught:
        read_cluster_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    config = controller_config(path, Given(tmp_path / "s", 0, remote_state_dir="s3://other", durability="local"))
    assert (config.state_dir, config.port) == (tmp_path / "s", 0)
    assert (config.remote_state_dir, config.durability) == ("s3://other", Durability.LOCAL)
    assert len(config.scale_groups) == 2
    with pytest.raises(InvalidRequest, match="--state-dir"):
        controller_config(None, Given())


def test_limits_of_logs_and_the_disks_reserve() -> None:
    path = Path("c.yaml")
    found = parse_cluster_config({"controller": {"log_limit": "8MB"}, "storage": {"disk_reserve": 0}}, path)
    assert (found.log_limit_bytes, found.disk_reserve_bytes) == (8 * 2**20, 0)
    default = parse_cluster_config({}, path)
    assert (default.log_limit_bytes, default.disk_reserve_bytes) == (2**30, 64 * 2**20)
    with pytest.raises(InvalidRequest, match=r"c.yaml: controller.log_limit is 10; it must be 1MB or more"):
        parse_cluster_config({"controller": {"log_limit": 10}}, path)
