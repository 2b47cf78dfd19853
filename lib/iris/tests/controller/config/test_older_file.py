"""Cluster files of the ancestor, in our words."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from iris.controller.config.cluster_file import parse_cluster_config, read_cluster_config, read_translated
from iris.controller.config.document import Document, read_document
from iris.controller.config.older_file import translate
from iris.controller.config.schema import file_schema
from iris.domain.entities import UserBudget
from iris.domain.resources import Device
from iris.domain.scale_groups import CapacityType, GcpTemplate, ManualTemplate
from iris.domain.states import PriorityBand
from rigging.errors import InvalidRequest
from rigging.text.yaml_files import dump_yaml, fill_variables

REPOSITORY = Path(__file__).resolve().parents[5]
GCP = {"gcp": {"project_id": "p"}}
SCHEMA = Draft202012Validator(file_schema())
HOST = {"cpu": 8, "ram": "32GB", "disk": "100GB"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "old.yaml"
    path.write_text(text)
    return path


def parse(content: Any) -> Any:
    """In our words it means the same, and stays as it is."""
    path = Path("old.yaml")
    found = parse_cluster_config(content, path)
    ours = yaml.safe_load(yaml.safe_dump(translate(Document(path, content)).document.content, sort_keys=False))
    again = translate(Document(path, ours))
    assert (parse_cluster_config(ours, path), again.document.content, again.left_out) == (found, ours, ())
    return found


def test_a_group_says_in_several_places_what_ours_says_in_one():
    attributes = {"region": "europe-west4", "preemptible": "true", "tier": "a"}
    v5e = {
        "accelerator_type": "ACCELERATOR_TYPE_TPU",
        "accelerator_variant": "v5litepod-16",
        "num_vms": 4,
        "resources": {**HOST, "device_count": 4, "capacity_type": "CAPACITY_TYPE_PREEMPTIBLE"},
        "buffer_slices": 1,
        "max_slices": 9,
        "priority": 10,
        "worker": {"attributes": attributes},
        "slice_template": {"gcp": {"zone": "europe-west4-b", "runtime_version": "x"}, "num_vms": 4},
    }
    [group] = parse({"platform": GCP, "scale_groups": {"v5e": v5e}}).scale_groups
    counts = (group.hosts_per_slice, group.min_slices, group.buffer_slices, group.max_slices)
    assert (group.name, counts) == ("v5e", (4, 0, 1, 9))
    assert (group.region, group.zone, group.preemptible) == ("europe-west4", "europe-west4-b", True)
    assert (group.attributes, group.priority, group.capacity_type) == ((("tier", "a"),), 10, CapacityType.SPOT)
    assert group.template == GcpTemplate(is_tpu=True, runtime_version="x")
    assert (group.host.cpu_millis, group.host.memory_bytes) == (8000, 32 << 30)
    assert group.host.device == Device("tpu", "v5litepod-16", 4)


def test_a_group_of_plain_machines_and_one_of_gpus():
    gpus = {**HOST, "device_type": "gpu", "device_variant": "H100", "gpu_count": 8}
    groups = [{"name": "cpu", "accelerator_type": "cpu", "resources": HOST}, {"name": "gpu", "resources": gpus}]
    cpu, gpu = parse({"scale_groups": groups}).scale_groups
    assert (cpu.host.device, cpu.preemptible) == (None, False)
    assert gpu.host.device == Device("gpu", "H100", 8)


def test_a_pool_is_a_group_for_each_size_and_zone():
    pool = {
        "family": "v5e",
        "zones": ["europe-west4-b", "us-west4-a"],
        "base_priority": 3,
        "resources": {**HOST, "capacity_type": "spot"},
        "sizes": {4: {"max_slices": 8}, 16: {"buffer_slices": 1, "max_slices": 2}},
    }
    found = parse({"tpu_pools": {"v5e-spot": pool}}).scale_groups
    assert [(group.name, group.hosts_per_slice, group.buffer_slices, group.max_slices) for group in found] == [
        ("tpu_v5e-spot_4-europe-west4-b", 1, 0, 8),
        ("tpu_v5e-spot_4-us-west4-a", 1, 0, 8),
        ("tpu_v5e-spot_16-europe-west4-b", 4, 1, 2),
        ("tpu_v5e-spot_16-us-west4-a", 4, 1, 2),
    ]
    assert [(group.quota_pool, group.allocation_tier, group.priority) for group in found[1:3]] == [
        ("v5e-spot-us-west4-a", 1, 3),
        ("v5e-spot-europe-west4-b", 2, 3),
    ]
    assert {(group.region, group.preemptible) for group in found} == {("europe-west4", True), ("us-west4", True)}


@pytest.mark.parametrize(
    "budgets",
    [
        [{"user_id": "ann", "budget_limit": 500, "max_band": "PRIORITY_BAND_INTERACTIVE"}, {"user": "bob"}],
        {"ann": {"limit": 500, "max_band": "interactive"}, "bob": {}},
        [{"user_ids": ["ann"], "limit": 500, "max_band": "interactive"}, {"user_ids": ["bob"]}],
        {"ann": {"max_weight": 500.0, "max_band": "interactive"}, "bob": None},
    ],
)
def test_budgets_of_users(budgets):
    ann, bob = parse({"user_budgets": budgets}).user_budgets
    assert ann == UserBudget("ann", 500, PriorityBand.INTERACTIVE)
    assert bob == UserBudget("bob", 0, PriorityBand.PRODUCTION)


def test_every_key_that_means_nothing_is_named_with_its_line_and_why(tmp_path):
    path = written(
        tmp_path,
        """name: c
platform: {gcp: {project_id: p}}
controller:
  image: x
  port: 7
storage: {bundle_prefix: gs://b, remote_state_dir: gs://b/iris}
defaults: {worker: {docker_image: w, default_task_image: t}}
scale_groups:
  a:
    priority: 3
    resources: {cpu: 1, ram: 1GB, disk: 1GB}
    worker: {task_env: {A: b}}
    slice_template:
      gcp: {zone: us-east1-d, machine_type: n2, mode: VM}
""",
    )
    found = translate(read_document(path))
    told = [str(item).removeprefix(f"{path}:") for item in found.left_out]
    assert [line.split(": ")[0:2] for line in told] == [
        ["4", "controller.image"],
        ["6", "storage.bundle_prefix"],
        ["7", "defaults.worker.docker_image"],
        ["12", "scale_groups.a.worker.task_env"],
        ["14", "scale_groups.a.slice_template.gcp.mode"],
    ]
    assert all(item.why for item in found.left_out)
    config = read_cluster_config(path)
    assert (config.port, config.remote_state_dir, config.platform.task_image) == (7, "gs://b/iris", "t")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("platfrom: {}", "old.yaml:1: platfrom is unknown; did you mean 'platform'?"),
        (
            "scale_groups:\n  a:\n    resources:\n      rma: 3GB",
            "old.yaml:4: scale_groups.a.resources.rma is unknown; did you mean 'ram'?",
        ),
        (
            "scale_groups:\n  a:\n    cpu: 8\n    resources: {cpu: 9}",
            "old.yaml:4: scale_groups.a.resources.cpu is 9; it must be left out, as ",
        ),
        (
            "scale_groups:\n  a:\n    resources:\n      cpu: lots",
            "old.yaml:4: scale_groups.a.resources.cpu is 'lots'; it must be",
        ),
        (
            "scale_groups:\n  a: {cpu: 1, memory: 1GB, disk: 1GB, resources: {capacity_type: cheap}}",
            "old.yaml:2: scale_groups.a.resources.capacity_type is 'cheap'; it must be 'on-demand' or 'spot' or",
        ),
        (
            "platform: {gcp: {project_id: p}}\nscale_groups:\n  a: {cpu: 1, memory: 1GB, disk: 1GB, zones: [b-c]}",
            "old.yaml:3: scale_groups.a.slice_template.gcp.machine_type is missing; it must be a machine type such as",
        ),
        ("tpu_pools:\n  p: {family: v5e}", "old.yaml:2: tpu_pools.p.zones is []; it must be a list of zones"),
        ("tpu_pools:\n  p: {family: v5e, zones: [a-b]}", "old.yaml:2: tpu_pools.p.sizes is {}; it must be a mapping"),
        (
            "tpu_pools:\n  p: {family: v5e, zones: [a-b], sizes: {4: true}}",
            "old.yaml:2: tpu_pools.p.sizes.4 is True;",
        ),
        (
            "scale_groups:\n  a: {name: {b: c}}",
            "old.yaml:2: scale_groups.a.name is {'b': 'c'}; it must be 'a'",
        ),
        ("user_budgets:\n  - {user_id: '7'}", "old.yaml:2: user_budgets[0].user_id: '7' is not a valid name"),
        (
            "user_budgets:\n  - {user: a, limit: -1}",
            "old.yaml:2: user_budgets[0].limit is -1; it must be a number",
        ),
        ("name: a\nname: b", "old.yaml:2: name is given twice; it is in line 1, too"),
        ("a: &a\n  b: *a", "old.yaml:1: an alias below this stands for the whole of it"),
        ("platform: " + "[" * 500 + "]" * 500, "cannot read the cluster config"),
        ("{worker_provider: {a: 1}, kubernetes_provider: {b: 1}}", "kubernetes_provider is 'given'"),
    ],
)
def test_garbage_is_refused_with_file_line_key_and_what_is_allowed(tmp_path, text, told):
    with pytest.raises(InvalidRequest) as refused:
        read_cluster_config(written(tmp_path, text))
    assert told in str(refused.value)


@pytest.mark.parametrize("name", ["gcp", "manual", "marin", "smoke-gcp"])
def test_the_projects_own_clusters_are_some(name, monkeypatch):
    monkeypatch.setenv("GCP_PROJECT", "p")
    path = REPOSITORY / "infra" / "clusters" / f"{name}.yaml"
    config, found = read_translated(path)
    ours = yaml.safe_load(yaml.safe_dump(yaml.safe_load(dump_yaml(found.document.content))))
    again = parse_cluster_config(fill_variables(ours, {"GCP_PROJECT": "p"}), path)
    assert sorted(again.scale_groups, key=str) == sorted(config.scale_groups, key=str)
    assert (again.platform, again.autoscale) == (config.platform, config.autoscale)
    assert all(group.template is not None for group in config.scale_groups)
    SCHEMA.validate(json.loads(json.dumps(yaml.safe_load(path.read_text()))))
    SCHEMA.validate(ours)
    if name == "marin":
        kinds = {group.host.device.variant if group.host.device else "cpu" for group in config.scale_groups}
        assert {"cpu", "v4-16", "v5p-64", "v6e-4"} <= kinds
        assert len({group.region for group in config.scale_groups}) > 3
        assert {budget.user for budget in config.user_budgets} == {"data-team", "guest"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("storage: {remote_state_dri: x}", []),
        ("controller: {port: 99999}", ["controller", "port"]),
        ("scale_groups: {a: {capacity_type: cheap}}", ["scale_groups"]),
        ("defaults: {autoscaler: {boot_timeout: soon}}", ["defaults", "autoscaler", "boot_timeout"]),
        ("storage: {disk_reserve: [1]}", ["storage", "disk_reserve"]),
        ("platform: {label_prefix: 5x}", ["platform", "label_prefix"]),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(tmp_path, text, place):
    error = best_match(SCHEMA.iter_errors(yaml.safe_load(text)))
    assert list(error.absolute_path)[: len(place)] == place
    with pytest.raises(InvalidRequest):
        read_cluster_config(written(tmp_path, text))


MANY = """storage: {remote_state_dri: x}
scale_groups:
  a:
    cpu: ${CORES}
    memory: ${UNSET}
    disk: $$1
    zoens: [b]
  b: {cpu: 0, memory: 1GB, disk: 1GB}
limits: {mode: "${MODE}"}
tpu_pools:
  p: {family: "${CORES}", zones: [a-b], sizes: {4: {}}, resources: {cpu: 1, ram: 1GB, disk: 1GB}}
"""


def test_all_problems_are_told_at_once_in_the_files_order_without_what_variables_hold(tmp_path, monkeypatch):
    monkeypatch.setenv("CORES", "sesame")
    monkeypatch.setenv("MODE", "hard sesame")
    path = written(tmp_path, MANY)
    with pytest.raises(InvalidRequest) as refused:
        read_cluster_config(path)
    assert str(refused.value).splitlines() == [
        f"{path}:1: storage.remote_state_dri is unknown; did you mean 'remote_state_dir'?",
        f"{path}:4: scale_groups.a.cpu is '${{CORES}}'; it must be a number of cores above 0",
        f"{path}:5: scale_groups.a.memory: the variable UNSET is not set; set it, or write $$ for $",
        f"{path}:6: scale_groups.a.disk is '$$1'; it must be a size such as 448GB",
        f"{path}:7: scale_groups.a.zoens is unknown; did you mean 'zones'?",
        f"{path}:8: scale_groups.b.cpu is 0; it must be a number of cores above 0",
        f"{path}:9: limits.mode is '${{MODE}}'; it must be 'enforced' or 'soft'",
        f"{path}:11: tpu_pools.p.sizes.4 is '${{CORES}}-4'; it must be a TPU type such as v5p-64",
    ]


ODD = [
    None,
    True,
    -1,
    1.5,
    float("nan"),
    "",
    "${SECRET}",
    [],
    [1],
    [None],
    {},
    {"a": 1},
    {None: 1},
    2**70,
    {4: 3},
    "5m",
]


def test_a_file_of_any_content_is_read_or_refused_and_shows_no_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("GCP_PROJECT", "p")
    monkeypatch.setenv("SECRET", "sesame")
    text = (REPOSITORY / "infra" / "clusters" / "smoke-gcp.yaml").read_text()
    text += "tpu_pools: {p: {family: v5e, zones: [a-b], sizes: {4: {}}, resources: {cpu: 1, ram: 1GB, disk: 1GB}}}"
    seed = random.Random(4)
    for _ in range(60):
        content = yaml.safe_load(text)
        for _ in range(seed.randint(1, 3)):
            outer, key = seed.choice(list(places(content)))
            outer[key if seed.random() < 0.8 else seed.choice(["zone", "name", 3, "manual"])] = seed.choice(ODD)
        path = written(tmp_path, yaml.safe_dump(content))
        problems = ""
        try:
            read_cluster_config(path)
        except InvalidRequest as error:
            problems = str(error)
        assert "sesame" not in problems


def places(content: Any) -> Iterator[tuple[dict[Any, Any], Any]]:
    for key, value in content.items() if isinstance(content, dict) else ():
        yield content, key
        yield from places(value)


def test_variables_fill_texts_and_numbers_and_stay_in_what_is_imported(tmp_path, monkeypatch):
    for name, value in {"PORT": "7077", "FORCE": "true", "CORES": "0.5", "B": "b", "SIZE": "1GB"}.items():
        monkeypatch.setenv(name, value)
    text = "controller: {port: '${PORT}'}\nlimits: {force: '${FORCE}'}\nstorage: {remote_state_dir: 'gs://${B}/$$x'}\n"
    text += "scale_groups:\n  a:\n    cpu: ${CORES}\n    memory: ${SIZE}\n    disk: ${SIZE}\n"
    text += "    slice_template: {manual: {hosts: ['${B}']}}\n"
    config, found = read_translated(written(tmp_path, text))
    [group] = config.scale_groups
    assert (config.port, config.limits.force, config.remote_state_dir) == (7077, True, "gs://b/$x")
    assert (group.host.cpu_millis, group.host.memory_bytes, group.template) == (500, 2**30, ManualTemplate(("b",)))
    ours = tmp_path / "ours.yaml"
    ours.write_text(dump_yaml(found.document.content))
    assert "gs://${B}/$$x" in ours.read_text()
    assert read_cluster_config(ours).scale_groups == config.scale_groups


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nauth: {token: SECRET, x: [}",
        "name: a\nauth: SECRET\n\tx: 1",
        "name: a\nauth: !!python/name:SECRET x",
        "auth: [SECRET]\nname: a\n---\nname: SECRET",
        "- {token: SECRET}",
        "scale_groups: SECRET",
        "scale_groups:\n  a: {cpu: SECRET, memory: 1GB, disk: 1GB}",
    ],
)
def test_a_refusal_shows_no_secret_of_the_file(tmp_path: Path, text: str):
    secret = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
    with pytest.raises(InvalidRequest) as refused:
        read_cluster_config(written(tmp_path, text.replace("SECRET", secret)))
    assert "old.yaml" in str(refused.value)
    assert not any(secret[start : start + 12] in str(refused.value) for start in range(3, len(secret) - 12))


def test_bytes_that_are_no_text_are_refused_and_aliases_of_aliases_read_once(tmp_path: Path):
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InvalidRequest, match="cannot read the cluster config"):
        read_document(tmp_path / "bytes.yaml")
    lines = ["endpoints:", "  x0: &x0 [a, a]"]
    lines += [f"  x{number}: &x{number} [{', '.join([f'*x{number - 1}'] * 9)}]" for number in range(1, 30)]
    path = written(tmp_path, "\n".join(lines))  # 9 ** 29 of them, if each were followed
    assert "endpoints" in str(translate(read_document(path)).left_out[0])
