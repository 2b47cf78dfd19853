"""Cluster files as older clusters have them."""

import json
from pathlib import Path

import pytest
import yaml

from iris.cli.main import run
from iris.controller.config.cluster_file import parse_cluster_config

GROUP = {"cpu": 8, "memory": "32GB", "disk": "100GB"}


def parse(text):
    return parse_cluster_config(yaml.safe_load(text), Path("marin.yaml"))


@pytest.mark.compatible("cluster YAML: scale_groups as a map by name", since="0.1.0")
def test_scale_groups_by_name():
    found = parse(
        """
        scale_groups:
          cpu-a: {cpu: 8, memory: 32GB, disk: 100GB, max_slices: 3}
          v5p-8-b: {cpu: 208, memory: 448GB, disk: 100GB, accelerator: {type: tpu, variant: v5p-8}, zone: us-east5-a}
        """
    ).scale_groups
    assert [(group.name, group.max_slices) for group in found] == [("cpu-a", 3), ("v5p-8-b", 1)]
    assert found[1].region == "us-east5"
    with pytest.raises(ValueError, match=r"marin.yaml: scale_groups.a.name is 'b'; it must be 'a', or left out"):
        parse_cluster_config({"scale_groups": {"a": {**GROUP, "name": "b"}}}, Path("marin.yaml"))
    with pytest.raises(ValueError, match=r"scale_groups.a.colour is unknown"):
        parse_cluster_config({"scale_groups": {"a": {**GROUP, "colour": "red"}}}, Path("marin.yaml"))


@pytest.mark.compatible("cluster YAML: platform defaults auth user_budgets tpu_pools endpoints ...", since="0.1.0")
def test_sections_of_older_files_are_known():
    found = parse(
        """
        name: marin
        platform: {gcp: {project_id: p}}
        controller: {}
        defaults: {worker: {docker_image: x}}
        auth: {gcp: {}}
        user_budgets: []
        tpu_pools: {}
        endpoints: {}
        log_server_config: {}
        worker_provider: {}
        storage: {remote_state_dir: gs://bucket/iris}
        """
    )
    assert found.remote_state_dir == "gs://bucket/iris"
    with pytest.raises(ValueError, match="platfrom is unknown; did you mean 'platform'"):
        parse("platfrom: {}")


@pytest.mark.compatible("cluster YAML: one of worker_provider, kubernetes_provider", since="0.1.0")
def test_a_cluster_has_one_provider():
    assert parse("kubernetes_provider: {namespace: iris}").scale_groups == ()
    with pytest.raises(ValueError, match="kubernetes_provider is 'given'; it must be left out"):
        parse("{worker_provider: {a: 1}, kubernetes_provider: {b: 1}}")


OLDER = """
endpoints: {a: b}
platform: {gcp: {project_id: p}}
scale_groups:
  v4-16-b:
    accelerator_type: tpu
    accelerator_variant: v4-16
    num_vms: 2
    resources: {cpu: 240, ram: 400GB, disk: 100GB, device_count: 4, capacity_type: preemptible}
    buffer_slices: 1
    max_slices: 8
    worker: {attributes: {region: us-central2}}
    slice_template: {gcp: {zone: us-central2-b, runtime_version: tpu-ubuntu2204-base}}
tpu_pools:
  v6e:
    family: v6e
    zones: [us-east1-d]
    resources: {cpu: 180, ram: 720GB, disk: 100GB}
    slice_template: {gcp: {runtime_version: v2-alpha-tpuv6e}}
    sizes: {8: {max_slices: 2}}
user_budgets: [{user_ids: [ann], budget_limit: 500, max_band: PRIORITY_BAND_BATCH}]
"""


@pytest.mark.compatible("cluster YAML: scale groups, tpu_pools and user_budgets of the ancestor", since="0.1.0")
def test_slices_and_budgets_of_older_files():
    found = parse(OLDER)
    v4, v6e = found.scale_groups
    assert (v4.hosts_per_slice, v4.buffer_slices, v4.max_slices, v4.preemptible) == (2, 1, 8, True)
    assert (v4.region, v4.zone, str(v4.host.device)) == ("us-central2", "us-central2-b", "tpu v4-16")
    assert (v6e.max_slices, v6e.region, str(v6e.host.device)) == (2, "us-east1", "tpu v6e-8")
    assert [group.template.runtime_version for group in (v4, v6e)] == ["tpu-ubuntu2204-base", "v2-alpha-tpuv6e"]
    assert [(budget.user, budget.max_weight, budget.max_band.word) for budget in found.user_budgets] == [
        ("ann", 500, "batch")
    ]
    for word, preemptible in (("spot", True), ("on-demand", False), ("reserved", False)):
        group = parse(OLDER.replace("capacity_type: preemptible", f"capacity_type: {word}")).scale_groups[0]
        assert group.preemptible is preemptible


@pytest.mark.compatible("iris cluster import FILE", since="0.1.0")
def test_an_older_file_is_written_in_our_words(tmp_path, capfd):
    older, ours = tmp_path / "older.yaml", tmp_path / "ours.yaml"
    older.write_text(OLDER)
    assert run(["cluster", "import", str(older), "--output", str(ours)]) == 0
    assert run(["cluster", "import", str(older), "--output", str(ours)]) == 2, "what is there is not written over"
    assert run(["cluster", "import", str(older), "--output", str(ours), "--force"]) == 0
    said = capfd.readouterr().err
    assert f"left out: {older}:2: endpoints: " in said
    assert parse(ours.read_text()) == parse(OLDER)
    assert run(["cluster", "import", str(ours)]) == 0
    told = capfd.readouterr()
    assert (yaml.safe_load(told.out), told.err) == (yaml.safe_load(ours.read_text()), "")
    assert run(["cluster", "import", str(ours), "--output", str(ours)]) == 2


@pytest.mark.compatible("iris cluster validate FILE", since="0.1.0")
def test_a_file_is_validated_with_all_of_its_problems_or_what_has_no_effect(tmp_path, capfd):
    (tmp_path / "c.yaml").write_text(OLDER)
    assert run(["cluster", "validate", str(tmp_path / "c.yaml")]) == 0
    told = capfd.readouterr()
    assert told.out.endswith("c.yaml is valid; scale groups: 2; keys without effect: 1\n")
    assert f"no effect: {tmp_path / 'c.yaml'}:2: endpoints: " in told.err
    (tmp_path / "c.yaml").write_text(OLDER.replace("max_slices: 8", "max_slices: many") + "nmae: x\n")
    assert run(["cluster", "validate", str(tmp_path / "c.yaml")]) == 2
    first, second = capfd.readouterr().err.splitlines()
    assert "max_slices is 'many'; it must be a whole number" in first
    assert "nmae is unknown; did you mean 'name'?" in second
    assert run(["cluster", "validate", "--schema"]) == 0
    schema = json.loads(capfd.readouterr().out)
    assert "slice_template" in schema["properties"]["scale_groups"]["anyOf"][0]["items"]["properties"]
    assert run(["cluster", "validate"]) == 2


@pytest.mark.compatible("iris --cluster=NAME job ... with infra/clusters/NAME.yaml", since="0.1.0")
def test_a_cluster_that_nobody_has_reached_says_how_to_run_it_here(tmp_path, monkeypatch, capfd):
    (tmp_path / "pyproject.toml").write_text("[tool.uv.workspace]\n")
    folder = tmp_path / "infra" / "clusters"
    folder.mkdir(parents=True)
    (folder / "marin.yaml").write_text(OLDER)
    below = tmp_path / "experiments"
    below.mkdir()
    monkeypatch.chdir(below)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    assert run(["--cluster=marin", "job", "list"]) == 5
    assert f"iris cluster start --local --config {folder / 'marin.yaml'}" in capfd.readouterr().err
