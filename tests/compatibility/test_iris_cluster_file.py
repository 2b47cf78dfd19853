"""Cluster files as older clusters have them."""

from pathlib import Path

import pytest
import yaml

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
