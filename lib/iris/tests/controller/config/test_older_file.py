"""Cluster files of the ancestor, in our words."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.controller.config.cluster_file import parse_cluster_config, read_cluster_config
from iris.controller.config.older_file import translate
from iris.controller.config.sections import Document, read_document
from iris.domain.entities import UserBudget
from iris.domain.resources import Device
from iris.domain.states import PriorityBand
from rigging.errors import InvalidRequest

REPOSITORY = Path(__file__).resolve().parents[5]
HOST = {"cpu": 8, "ram": "32GB", "disk": "100GB"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "old.yaml"
    path.write_text(text)
    return path


def parse(content: Any) -> Any:
    return parse_cluster_config(content, Path("old.yaml"))


def test_a_group_says_in_several_places_what_ours_says_in_one():
    [group] = parse(
        {
            "scale_groups": {
                "v5e": {
                    "accelerator_type": "ACCELERATOR_TYPE_TPU",
                    "accelerator_variant": "v5litepod-16",
                    "num_vms": 4,
                    "resources": {**HOST, "device_count": 4, "capacity_type": "CAPACITY_TYPE_PREEMPTIBLE"},
                    "buffer_slices": 1,
                    "max_slices": 9,
                    "priority": 10,
                    "worker": {"attributes": {"region": "europe-west4", "preemptible": "true", "tier": "a"}},
                    "slice_template": {"gcp": {"zone": "europe-west4-b", "runtime_version": "x"}, "num_vms": 4},
                }
            }
        }
    ).scale_groups
    assert (group.name, group.hosts_per_slice, group.min_slices, group.max_slices) == ("v5e", 4, 1, 9)
    assert (group.region, group.zone, group.preemptible) == ("europe-west4", "europe-west4-b", True)
    assert group.attributes == (("tier", "a"),)
    assert (group.host.cpu_millis, group.host.memory_bytes) == (8000, 32 << 30)
    assert group.host.device == Device("tpu", "v5litepod-16", 4)


def test_a_group_of_plain_machines_and_one_of_gpus():
    cpu, gpu = parse(
        {
            "scale_groups": [
                {"name": "cpu", "accelerator_type": "cpu", "resources": HOST},
                {"name": "gpu", "resources": {**HOST, "device_type": "gpu", "device_variant": "H100", "gpu_count": 8}},
            ]
        }
    ).scale_groups
    assert (cpu.host.device, cpu.preemptible) == (None, False)
    assert gpu.host.device == Device("gpu", "H100", 8)


def test_a_pool_is_a_group_for_each_size_and_zone():
    found = parse(
        {
            "tpu_pools": {
                "v5e-spot": {
                    "family": "v5e",
                    "zones": ["europe-west4-b", "us-west4-a"],
                    "base_priority": 3,
                    "resources": {**HOST, "capacity_type": "spot"},
                    "sizes": {4: {"max_slices": 8}, 16: {"buffer_slices": 1, "max_slices": 2}},
                }
            }
        }
    ).scale_groups
    assert [(group.name, group.hosts_per_slice, group.min_slices, group.max_slices) for group in found] == [
        ("tpu_v5e-spot_4-europe-west4-b", 1, 0, 8),
        ("tpu_v5e-spot_4-us-west4-a", 1, 0, 8),
        ("tpu_v5e-spot_16-europe-west4-b", 4, 1, 2),
        ("tpu_v5e-spot_16-us-west4-a", 4, 1, 2),
    ]
    assert {(group.region, group.preemptible) for group in found} == {("europe-west4", True), ("us-west4", True)}


@pytest.mark.parametrize(
    "budgets",
    [
        [{"user_id": "ann", "budget_limit": 500, "max_band": "PRIORITY_BAND_INTERACTIVE"}, {"user": "bob"}],
        {"ann": {"limit": 500, "max_band": "interactive"}, "bob": {}},
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
scale_groups:
  a:
    priority: 3
    resources: {cpu: 1, ram: 1GB, disk: 1GB}
    worker: {env: {A: b}}
    slice_template:
      gcp: {zone: us-east1-d, machine_type: n2}
""",
    )
    found = translate(read_document(path))
    told = [str(item).removeprefix(f"{path}:") for item in found.left_out]
    assert [line.split(": ")[0:2] for line in told] == [
        ["2", "platform"],
        ["4", "controller.image"],
        ["6", "storage.bundle_prefix"],
        ["9", "scale_groups.a.priority"],
        ["13", "scale_groups.a.slice_template.gcp.machine_type"],
        ["11", "scale_groups.a.worker.env"],
    ]
    assert all(item.why for item in found.left_out)
    config = read_cluster_config(path)
    assert (config.port, config.remote_state_dir) == (7, "gs://b/iris")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("platfrom: {}", "old.yaml:1: platfrom is unknown; did you mean 'platform'?"),
        ("a: 1", "old.yaml:1: a is unknown; known are name, controller, storage, scale_groups, user_budgets,"),
        ("- a", "old.yaml: the file is ['a']; it must be a mapping of name"),
        ("scale_groups:\n  a:\n    colour: red", "old.yaml:3: scale_groups.a.colour is unknown; known are name,"),
        (
            "scale_groups:\n  a:\n    resources:\n      rma: 3GB",
            "old.yaml:4: scale_groups.a.resources.rma is unknown; did you mean 'ram'?",
        ),
        (
            "scale_groups:\n  a:\n    cpu: 8\n    resources: {cpu: 9}",
            "old.yaml:4: scale_groups.a.resources.cpu is 9, but ",
        ),
        (
            "scale_groups:\n  a:\n    resources:\n      cpu: lots",
            "old.yaml:2: scale_groups.a.cpu is 'lots'; it must be",
        ),
        (
            "scale_groups:\n  a: {cpu: 1, memory: 1GB, disk: 1GB, resources: {capacity_type: cheap}}",
            "old.yaml:2: scale_groups.a.resources.capacity_type is 'cheap'; it must be one of preemptible, spot,",
        ),
        ("tpu_pools:\n  p: {family: v5e}", "old.yaml:2: tpu_pools.p.zones is []; it must be a list of zones"),
        ("tpu_pools:\n  p: {family: v5e, zones: [a-b]}", "old.yaml:2: tpu_pools.p.sizes is {}; it must be a mapping"),
        ("user_budgets:\n  - {user_id: '7'}", "old.yaml:2: user_budgets[0].name: '7' is not a valid name"),
        (
            "user_budgets:\n  - {user: a, limit: -1}",
            "old.yaml:2: user_budgets[0].max_weight is -1; it must be a number",
        ),
        ("name: a\nname: b", "old.yaml:2: name is given twice; it is in line 1, too"),
        ("name: [", "cannot read the cluster config"),
        ("a: &a\n  b: *a", "old.yaml:1: an alias below this stands for the whole of it"),
        ("a: [&a [*a]]", "old.yaml:1: an alias below this stands for the whole of it"),
        ("platform: " + "[" * 3000 + "]" * 3000, "cannot read the cluster config"),
        ("{worker_provider: {a: 1}, kubernetes_provider: {b: 1}}", "kubernetes_provider is 'given'"),
    ],
)
def test_garbage_is_refused_with_file_line_key_and_what_is_allowed(tmp_path, text, told):
    with pytest.raises(InvalidRequest) as refused:
        read_cluster_config(written(tmp_path, text))
    assert told in str(refused.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "old.yaml"
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InvalidRequest, match="cannot read the cluster config"):
        read_document(path)


def test_the_projects_own_cluster_is_one():
    path = REPOSITORY / "infra" / "clusters" / "marin.yaml"
    found = translate(read_document(path))
    assert found.left_out, "it is in the ancestor's form"
    config = read_cluster_config(path)
    assert parse_cluster_config(yaml.safe_load(yaml.safe_dump(found.document.content, sort_keys=False)), path) == config
    kinds = {group.host.device.variant if group.host.device else "cpu" for group in config.scale_groups}
    assert {"cpu", "v4-16", "v5p-64", "v6e-4"} <= kinds
    assert len({group.region for group in config.scale_groups}) > 3
    assert {budget.user for budget in config.user_budgets} == {"data-team", "guest"}


@st.composite
def older_files(draw: st.DrawFn) -> dict[str, Any]:
    """Files that are right, with each thing said in one of the places where it may be said."""
    groups: dict[str, Any] = {}
    for number in range(draw(st.integers(0, 3))):
        resources: dict[str, Any] = {
            "cpu": draw(st.sampled_from([1, 0.5, 240])),
            draw(st.sampled_from(["ram", "memory"])): draw(st.sampled_from(["1GB", 1 << 30])),
            "disk": "10GB",
        }
        group: dict[str, Any] = {"resources": resources, "max_slices": draw(st.integers(2, 9))}
        template: dict[str, Any] = {}
        attributes: dict[str, str] = {}
        if draw(st.booleans()):
            place = draw(st.sampled_from([group, template]))
            place |= {"accelerator_type": "tpu", "accelerator_variant": draw(st.sampled_from(["v4-16", "v6e-4"]))}
        if draw(st.booleans()):
            draw(st.sampled_from([group, template]))["zone" if draw(st.booleans()) else "num_vms"] = None
        where = draw(st.sampled_from(["group", "gcp", "attribute", "nowhere"]))
        if where == "group":
            group["zones"] = ["us-east1-d"]
        elif where == "gcp":
            template["gcp"] = {"zone": "us-east1-d", "machine_type": "n2"}
        elif where == "attribute":
            attributes |= {"zone": "us-east1-d", "region": "us-east1"}
        if draw(st.booleans()):
            resources["capacity_type"] = draw(st.sampled_from(["spot", "reserved", "on-demand", "preemptible"]))
        if draw(st.booleans()):
            group["buffer_slices"] = draw(st.integers(0, 2))
        attributes |= draw(st.dictionaries(st.sampled_from(["team", "tier"]), st.sampled_from(["a", "b"])))
        template.pop("zone", None)
        group |= {"slice_template": template, "worker": {"attributes": attributes}, "priority": number}
        groups[f"g{number}"] = group
    as_list = [{"name": name, **group} for name, group in groups.items()]
    return {
        "platform": {"gcp": {"project_id": "p"}},
        "scale_groups": draw(st.sampled_from([groups, as_list])),
        "user_budgets": draw(st.sampled_from([[], [{"user_id": "ann", "budget_limit": 3}], {"ann": {"limit": 3}}])),
    }


@settings(deadline=None)
@given(older_files())
def test_a_file_in_our_words_means_the_same_and_stays_as_it_is(content):
    path = Path("old.yaml")
    first = translate(Document(path, content))
    ours = yaml.safe_load(yaml.safe_dump(first.document.content, sort_keys=False))
    assert parse_cluster_config(ours, path) == parse_cluster_config(content, path)
    second = translate(Document(path, ours))
    assert (second.document.content, second.left_out) == (ours, [])


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


def test_aliases_of_aliases_are_read_once(tmp_path: Path):
    lines = ["platform:", "  x0: &x0 [a, a]"]
    lines += [f"  x{number}: &x{number} [{', '.join([f'*x{number - 1}'] * 9)}]" for number in range(1, 30)]
    path = written(tmp_path, "\n".join(lines))  # 9 ** 29 of them, if each were followed
    assert "platform" in str(translate(read_document(path)).left_out[0])
