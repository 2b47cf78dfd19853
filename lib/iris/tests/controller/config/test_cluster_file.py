from dataclasses import replace
from pathlib import Path

import pytest

from iris.autoscale.rules import AutoscaleRules, ControllerHost, Platform, SshSettings
from iris.controller.admission.limits_policy import LimitsPolicy
from iris.controller.config.cluster_file import ClusterConfig, parse_cluster_config, read_cluster_config
from iris.controller.config.controller_config import Address, ControllerConfig, Durability
from iris.controller.config.options import Given, controller_config
from iris.core.rules.contact import ContactRules
from iris.domain.entities import JobsPerUser
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import CapacityType, GcpTemplate, ManualTemplate, ScaleGroup
from iris.domain.usage import Price
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
    assert cpu.host_attributes == {"preemptible": "false", "pool": "small", "scale-group": "cpu", "slice": "cpu"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storage: {remote_state_dri: x}", "storage.remote_state_dri is unknown; did you mean 'remote_state_dir'?"),
        ("storage: {durability: eventual}", "storage.durability is 'eventual'; it must be 'local' or 'remote'"),
        ("storage: {durability: remote}", "it must be 'local', as there is no storage.remote_state_dir"),
        ("storage: [1]", "storage is [1]; it must be a mapping of remote_state_dir, durability"),
        ("storag: {}", "storag is unknown; did you mean 'storage'?"),
        ("limits: {mode: hard}", "limits.mode is 'hard'; it must be 'enforced' or 'soft'"),
        ("limits: {force: 1}", "limits.force is 1; it must be true or false"),
        ("limits: {memory: 1GB}", "limits.memory is unknown; known are mode, force"),
        ("- 1", "the file is [1]; it must be a mapping"),
        ("controller: {task_pages_domain: 'x.org:80'}", "it must be a domain in lower case"),
        ("controller: {port: 99999}", "controller.port is 99999; it must be a whole number from 0 to 65535"),
        ("scale_groups: [{name: a, cpu: 1, memory: lots}]", "scale_groups[0].memory"),
        ("scale_groups: [GOOD, GOOD]", "scale_groups[1].name is 'a'; it must be a name that no other scale group has"),
        (
            "platform: {label_prefix: 5x}",
            "platform.label_prefix is '5x'; it must be up to 31 of a-z, 0-9 and -, a letter",
        ),
        ("a: [", "cannot read the cluster config"),
    ],
)
def test_a_mistake_is_told_with_file_key_value_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text.replace("GOOD", "{name: a, cpu: 1, memory: 1GB, disk: 1GB}"))
    with pytest.raises(InvalidRequest) as caught:
        read_cluster_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    config = controller_config(path, Given(tmp_path / "s", 0, 9.5, remote_state_dir="s3://other", durability="local"))
    assert (config.state_dir, config.port, config.idle_exit_s) == (tmp_path / "s", 0, 9.5)
    assert (config.remote_state_dir, config.durability) == ("s3://other", Durability.LOCAL)
    assert len(config.scale_groups) == 2
    assert controller_config(path, Given(Path("s"))).state_dir == Path.cwd() / "s", "others read it, elsewhere"
    found = controller_config(path, Given())
    assert (found.state_dir, found.port, found.durability) == (Path("/var/iris"), 7077, Durability.REMOTE)
    with pytest.raises(InvalidRequest, match="--state-dir"):
        controller_config(None, Given())


def test_limits_of_logs_the_disks_reserve_and_of_jobs(tmp_path: Path) -> None:
    path = Path("c.yaml")
    found = parse_cluster_config({"controller": {"log_limit": "8MB"}, "storage": {"disk_reserve": 0}}, path)
    assert (found.log_limit_bytes, found.disk_reserve_bytes) == (8 * 2**20, 0)
    default = parse_cluster_config({}, path)
    assert (default.log_limit_bytes, default.disk_reserve_bytes) == (2**30, 64 * 2**20)
    file = written(tmp_path, "limits: {mode: soft, force: true}")
    assert controller_config(file, Given(tmp_path)).limits == LimitsPolicy("soft", force=True)
    assert controller_config(written(tmp_path, ""), Given(tmp_path)).limits == LimitsPolicy("enforced")
    beyond = Given(tmp_path, host="10.0.0.1")
    assert controller_config(written(tmp_path, ""), beyond).limits == LimitsPolicy(unstated="warn")
    assert controller_config(written(tmp_path, "limits: {unstated: enforce}"), beyond).limits.unstated == "enforce"
    with pytest.raises(InvalidRequest, match=r"c.yaml: controller.log_limit is 10; it must be 1MB or more"):
        parse_cluster_config({"controller": {"log_limit": 10}}, path)


GROUP = {"name": "g", "cpu": 1, "memory": "1GB", "disk": "1GB"}
TPU = {"type": "tpu", "variant": "v5p-64"}


def group(**fields: object) -> ScaleGroup:
    [found] = parse_cluster_config({"scale_groups": [{**GROUP, **fields}]}, Path("c.yaml")).scale_groups
    return found


def test_what_a_scale_group_does_not_say() -> None:
    found = group()
    assert found == ScaleGroup("g", Resources(1000, 2**30, 2**30), hosts_per_slice=1, min_slices=0, max_slices=1)
    assert group(min_slices=3).max_slices == 3
    assert group(max_slices=0).max_slices == 0
    assert group(zone="us-east5-b").region == "us-east5"
    assert group(zone="us-east5-b", region="elsewhere").region == "elsewhere"
    assert group(preemptible=True).preemptible
    assert group(cpu=0.5).host.cpu_millis == 500
    assert group(cpu=1e6).host.cpu_millis == 10**9
    assert group(memory=4096).host.memory_bytes == 4096
    assert group(hosts_per_slice=7).hosts_per_slice == 7
    assert group(attributes={"pool": "x"}).attributes == (("pool", "x"),)
    gpu = group(accelerator={"type": "gpu", "variant": "H100"})
    assert (gpu.host.device, gpu.hosts_per_slice) == (Device("gpu", "H100", 1), 1)
    assert group(accelerator={"type": "gpu", "variant": "H100", "count": 8}).host.device == Device("gpu", "H100", 8)
    assert group(accelerator={**TPU, "count": 2}, hosts_per_slice=8).host.device == Device("tpu", "v5p-64", 2)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": ""}, "name is ''; it must be up to 63 letters, digits"),
        ({"name": 5}, "name is 5; it must be up to 63 letters, digits"),
        ({"name": "../../x"}, "name is '../../x'; it must be up to 63 letters, digits, '.', '_' and '-'"),
        ({"cpu": 0}, "cpu is 0; it must be a number of cores above 0"),
        ({"cpu": True}, "cpu is True; it must be a number"),
        ({"cpu": 1e6 + 1}, "cpu is 1000001.0; it must be a number"),
        ({"memory": True}, "memory is True; it must be a size"),
        ({"disk": None}, "disk is missing; it must be a size"),
        ({"hosts_per_slice": 0}, "hosts_per_slice is 0; it must be a whole number from 1 to 100000"),
        ({"min_slices": True}, "min_slices is True; it must be a whole number from 0"),
        ({"max_slices": 100_001}, "max_slices is 100001; it must be a whole number"),
        ({"preemptible": "yes"}, "preemptible is 'yes'; it must be true or false"),
        ({"attributes": {"a": 1}}, "it must be a mapping of texts to texts"),
        ({"accelerator": {"type": "gpu"}}, "variant is missing; it must be a type such as"),
        ({"accelerator": {**TPU, "count": 5}}, "count is 5; it must be a whole number from 1 to 4"),
        ({"accelerator": {"type": "gpu", "variant": "H100", "count": 0}}, "count is 0; it must be"),
        ({"accelerator": {"type": "npu"}}, "accelerator.type is 'npu'; it must be 'tpu' or 'gpu'"),
        ({"accelerator": {"type": "tpu", "variant": "v5p-7"}}, "scale_groups[0].accelerator.variant"),
        (
            {"accelerator": TPU, "hosts_per_slice": 3},
            "hosts_per_slice is 3; it must be 8, as a slice of this variant has",
        ),
        ({"min_slices": 3, "max_slices": 2}, "max_slices is 2; it must be min_slices or more"),
        ({"accelerator": 3}, "accelerator is 3; it must be a mapping of type, variant, count"),
        (
            {"preemptible": True, "capacity_type": "reserved"},
            "preemptible is True; it must be left out, as capacity_type",
        ),
        ({"zones": ["a-b"], "zone": "a-b"}, "zone is 'a-b'; it must be left out, as zones are given"),
        (
            {"slice_template": {"gcp": {"machine_type": "n2"}}},
            "project_id is missing; it must be a project; or give",
        ),
        ({"slice_template": {"gcp": {"reservation": "r"}}}, "reservation is 'r'; it must be left out, unless"),
        ({"slice_template": {"manual": {}}}, "hosts is missing; it must be a list of addresses"),
        ({"slice_template": {"manual": {"hosts": ["a", "a"]}}}, "it must be a list without duplicates"),
        *(
            ({"slice_template": {"manual": {"hosts": [host]}}}, "it must be a list of addresses, such as [host1, 'host")
            for host in ("a b", "-oProxyCommand=x", "a:65536", "a:0", "a:", "10.0.0.1:22:22", "root@a", "[::1", "a\nb")
        ),
        ({"slice_template": {"manual": {"hosts": ["a"]}}, "hosts_per_slice": 2}, "it must be a multiple of 2 hosts"),
        ({"slice_template": {"manual": {"hosts": ["a"]}}, "zones": ["b-c"]}, "left out, as the hosts are given"),
        ({"slice_template": {"manual": {"hosts": ["a"]}}, "max_slices": 2}, "it must be 1 or less, as there are 1"),
        ({"slice_template": {"manual": {"hosts": ["a"]}, "gcp": {}}}, "not both; leave one out"),
        ({"colour": "red"}, "colour is unknown; known are name, accelerator"),
    ],
)
def test_what_a_scale_group_cannot_be(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        group(**fields)
    assert reason in str(refused.value)
    assert str(refused.value).startswith("c.yaml: scale_groups[0].")


def test_a_list_is_no_mapping_and_a_mapping_no_list() -> None:
    path = Path("c.yaml")
    with pytest.raises(InvalidRequest, match=r"scale_groups is 'a'; it must be a list, or a mapping by name"):
        parse_cluster_config({"scale_groups": "a"}, path)
    assert parse_cluster_config(None, path) == parse_cluster_config({"scale_groups": None, "storage": None}, path)
    assert parse_cluster_config({}, path) == ClusterConfig(path), "a file that says nothing is as none"
    assert (parse_cluster_config({}, path).port, parse_cluster_config({}, path).state_dir) == (0, ""), "any free port"
    assert parse_cluster_config({"controller": {"state_dir": "~/x"}}, path).state_dir == str(Path.home() / "x")
    exact = parse_cluster_config({"controller": {"log_limit": 2**20, "port": 65_535}}, path)
    assert (exact.log_limit_bytes, exact.port) == (2**20, 65_535)
    with pytest.raises(InvalidRequest, match="port is True"):
        parse_cluster_config({"controller": {"port": True}}, path)
    with pytest.raises(InvalidRequest, match=r"c.yaml: storage.disk_reserve is 'lots'; it must be a size"):
        parse_cluster_config({"storage": {"disk_reserve": "lots"}}, path)


def test_a_durability_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="durability is 'eventual'; it must be 'local' or 'remote'"):
        controller_config(None, Given(tmp_path, durability="eventual"))
    with pytest.raises(InvalidRequest, match="durability is 'remote', but remote_state_dir is empty"):
        controller_config(None, Given(tmp_path, durability="remote"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"heartbeat_interval_s": 0}, r"worker_timeout_s \(60\) must be longer than heartbeat_interval_s \(0\)"),
        ({"heartbeat_interval_s": 5, "worker_timeout_s": 5}, "must be longer"),
        ({"fence_margin_s": -0.1}, "fence_margin_s is -0.1; it must be 0 or more"),
    ],
)
def test_times_that_cannot_be(fields: dict[str, float], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        ControllerConfig(tmp_path, **fields)


def test_a_worker_is_late_after_two_heartbeats_and_lost_after_its_time(tmp_path: Path) -> None:
    config = ControllerConfig(tmp_path, heartbeat_interval_s=5, worker_timeout_s=60, fence_margin_s=0)
    assert config.contact_rules == ContactRules(late_after_ms=10_000, lost_after_ms=60_000, fence_margin_ms=0)
    short = ControllerConfig(tmp_path, heartbeat_interval_s=5, worker_timeout_s=6)
    assert (short.contact_rules.late_after_ms, short.contact_rules.lost_after_ms) == (6000, 6000)
    assert [str(Address(host, 7)) for host in ("::1", "127.0.0.1")] == ["[::1]:7", "127.0.0.1:7"]


def test_name_limits_and_who_is_told_of_ends_are_read(tmp_path: Path) -> None:
    text = "name: big\njobs_per_user: {max_running: 5}\n"
    text += "prices: {H100: {chip_hour: 2.5}}\n"
    text += 'notify: {url: https://hooks.example.com/key, allow: ["*.example.com", 10.0.0.0/8]}\n'
    path = written(tmp_path, text)
    config = controller_config(path, Given(state_dir=tmp_path))
    assert (config.cluster_name, config.jobs_per_user) == ("big", JobsPerUser(0, 5))
    assert config.prices == (("H100", Price(chip_hour=2.5)),)
    assert (config.notices.url, config.notices.is_private) == ("https://hooks.example.com/key", True)
    assert config.notices.allow == ("*.example.com", "10.0.0.0/8")
    assert not controller_config(path, Given(state_dir=tmp_path, host="10.0.0.1")).notices.is_private


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{url: ftp://h/key}", "notify.url: the notify URL begins with 'ftp'"),
        ("{allow: host}", "notify.allow is 'host'; it must be a list of hosts"),
        ("{allow: [1]}", "it must be a list of hosts"),
    ],
)
def test_what_is_wrong_about_it_is_told_without_the_address(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_cluster_config(written(tmp_path, f"notify: {text}\n"))
    assert message in str(caught.value)
    assert "key" not in str(caught.value)


PLATFORM = """
platform: {label_prefix: big, gcp: {project_id: p}}
controller: {gcp: {zone: us-east5-a, machine_type: n2-standard-8, boot_disk_size_gb: 200, port: 10000}}
defaults:
  autoscaler: {evaluation_interval: 20s, scale_down_delay: {milliseconds: 1500}, boot_timeout: 5m, max_hosts: 9}
  ssh: {user: ann, connect_timeout: 30s}
  worker: {port: 10001, cache_dir: /x, env: {A: b}}
  task_env: {C: d}
  task_image: "py:3"
scale_groups:
  tpu:
    accelerator: {type: tpu, variant: v5p-64}
    cpu: 208
    memory: 448GB
    disk: 100GB
    zones: [us-east5-a, us-central1-b]
    capacity_type: reserved
    buffer_slices: 2
    priority: 7
    quota_pool: q
    allocation_tier: 3
    hourly_price: 64
    worker: {env: {E: f}}
    slice_template: {gcp: {runtime_version: v2, reservation: r, tags: [t], labels: {l: m}, boot_disk_size_gb: 50}}
  rack: {cpu: 2, memory: 1GB, disk: 1GB, hosts_per_slice: 2, slice_template: {manual: {hosts: [a, b, c, "d:2"]}}}
prices: {tpu-us-east5-a: {chip_hour: 1}}
"""


def test_a_platform_its_groups_in_each_zone_and_their_prices_are_read(tmp_path: Path) -> None:
    config = controller_config(written(tmp_path, PLATFORM), Given(tmp_path))
    assert config.platform == Platform(
        "p", "big", ControllerHost("us-east5-a", "n2-standard-8", 200, port=10000),
        SshSettings("ann", connect_timeout_s=30), 10001, "/x", (("A", "b"),), (("C", "d"),), "py:3",
    )  # fmt: skip
    assert config.autoscale == AutoscaleRules(look_s=20, idle_s=1.5, boot_deadline_s=300, max_hosts=9)
    assert config.port == 10000
    east, central, rack = config.scale_groups
    assert east == ScaleGroup(
        "tpu-us-east5-a", Resources(208_000, 448 << 30, 100 << 30, Device("tpu", "v5p-64", 4)), 8, 0, 2, "us-east5",
        "us-east5-a", priority=7, buffer_slices=2, capacity_type=CapacityType.RESERVED, quota_pool="q",
        allocation_tier=3, hourly_price=64, environment=(("E", "f"),),
        template=GcpTemplate(
            is_tpu=True, disk_size_gb=50, runtime_version="v2", reservation="r", tags=("t",), labels=(("l", "m"),)
        ),
    )  # fmt: skip
    assert central == replace(east, name="tpu-us-central1-b", zone="us-central1-b", region="us-central1")
    assert (rack.template, rack.max_slices) == (ManualTemplate(("a", "b", "c", "d:2")), 2)
    assert dict(config.prices) == {"tpu-us-east5-a": Price(chip_hour=1), "tpu-us-central1-b": Price(chip_hour=2)}
