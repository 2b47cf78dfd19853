"""Mistakes in cluster files that Ray finds late or never, and changes that a running cluster does not survive."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin.run.cluster.file.changes import Effect, check_no_orphans, check_taken_up, compare
from marin.run.cluster.file.validate import check_cluster_file, find_mistakes
from marin.run.cluster_target import parse_cluster_file
from rigging.errors import Conflict, InvalidRequest

FILE = Path(__file__).parents[6] / "infra" / "marin-cluster.yaml"
GOOD: dict[str, Any] = yaml.safe_load(FILE.read_text())
Edit = Callable[[dict[str, Any]], object]


def edited(edit: Edit) -> dict[str, Any]:
    config = deepcopy(GOOD)
    edit(config)
    return config


def head(config: Any) -> Any:
    return config["available_node_types"]["head_default"]


def worker(config: Any) -> Any:
    return config["available_node_types"]["tpu_v4_8"]


def node(config: Any) -> Any:
    return worker(config)["node_config"]


def topology(config: dict[str, Any], kind: str, shape: str) -> None:
    del node(config)["acceleratorType"]
    node(config)["acceleratorConfig"] = {"type": kind, "topology": shape}


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda c: node(c).update(runtimeVersoin="x"), "unknown key 'runtimeVersoin'; did you mean 'runtimeVersion'?"),
        (
            lambda c: node(c)["schedulingConfig"].update(preemtible=True),
            "tpu_v4_8.node_config.schedulingConfig: unknown key 'preemtible'; did you mean 'preemptible'?",
        ),
        (lambda c: node(c).update(schedulingConfig="spot"), "schedulingConfig: 'spot' is not an object"),
        (lambda c: head(c)["node_config"].update(machinetype="x"), "unknown key 'machinetype'"),
        (
            lambda c: head(c)["node_config"]["disks"][0]["initializeParams"].update(diskSizeGB=1),
            "disks[0].initializeParams: unknown key 'diskSizeGB'; did you mean 'diskSizeGb'?",
        ),
        (lambda c: worker(c).update(min_workers=65), "tpu_v4_8: min_workers 65 must be from 0 to its max_workers, 64"),
        (lambda c: worker(c).update(min_workers="4"), "must be whole numbers, not '4' and 64"),
        (lambda c: c.update(max_workers=77), "max_workers 77 is less than the sum of the types' own, 78"),
        (lambda c: c.pop("max_workers"), "max_workers is missing: Ray would allow 2 workers in all"),
        (lambda c: c["provider"].pop("availability_zone"), "it has no availability_zone; write e.g."),
        (lambda c: c["provider"].update(availability_zone="us-east1-d"), "'us-east1-d' is not in region 'us-central2'"),
        (lambda c: c["provider"].update(zone="x"), "provider: unknown key 'zone'"),
        (lambda c: c.update(cluster_name="Marin_1"), "cluster_name 'Marin_1': VM names contain it"),
        (lambda c: head(c)["resources"].update(CPU=8), "the head must run no tasks; write resources"),
        (lambda c: head(c)["resources"].clear(), "no CPU, so Ray uses all CPUs"),
        (lambda c: head(c)["resources"].update(TPU=4), "it has TPU: 4"),
        (lambda c: head(c).update(max_workers=1), "max_workers 1; write 0, as there is one head"),
        (lambda c: head(c)["node_config"]["scheduling"].update(provisioningModel="SPOT"), "the head must be on demand"),
        (lambda c: head(c)["node_config"].update(scheduling=[{"preemptible": True}]), "the head must be on demand"),
        (lambda c: c.update(head_node_type="tpu_v4_8"), "a TPU may be preempted at any time"),
        (lambda c: node(c).update(acceleratorType="v4-9"), "unknown TPU type 'v4-9'; valid v4 types: v4-8"),
        (lambda c: node(c).update(acceleratorType="v9-8"), "unknown TPU type 'v9-8'"),
        (lambda c: node(c).pop("acceleratorType"), "neither a VM (machineType) nor a TPU"),
        (lambda c: topology(c, "V4", "2x2x3"), "topology '2x2x3' has 12 chips; v4 slices have 4, 8, 16"),
        (lambda c: topology(c, "V4", "huge"), "topology 'huge' is invalid; write e.g. 2x2x2"),
        (lambda c: topology(c, "V9", "2x2"), "slices have none: 'V9' is unknown"),
        (
            lambda c: node(c).update(acceleratorConfig={"type": "V4", "topology": "2x2x1"}),
            "give acceleratorType or acceleratorConfig, not both",
        ),
        (lambda c: node(c).pop("runtimeVersion"), "for v4-8 write e.g. tpu-ubuntu2204-base"),
        (lambda c: node(c)["schedulingConfig"].update(reserved=True), "reserved and preemptible exclude each other"),
        (lambda c: worker(c)["resources"].update(TPU=8), "a host of v4-8 has TPU: 4, not 8"),
        (lambda c: worker(c)["resources"].update(CPU=241), "CPU must be from 1 to 240, which a VM has, not 241"),
        (lambda c: worker(c)["resources"].pop("TPU-v4-8-head"), "write TPU-v4-8-head: 1"),
        (lambda c: worker(c)["resources"].update({"TPU-v4-16-head": 1}), "TPU-v4-16-head is of another TPU type"),
        (lambda c: c["available_node_types"].update({"Big": worker(c)}), "Big: nodes are labelled"),
        (lambda c: c["available_node_types"].clear(), "available_node_types: empty"),
        (lambda c: c.update(head_node_type="head"), "head_node_type 'head' is not one of the types: head_default"),
        (lambda c: c.pop("head_node_type"), "head_node_type None is not one of the types"),
        # By Ray's own schema.
        (lambda c: c.update(setup_comands=[]), "('setup_comands' was unexpected)"),
        (lambda c: c.update(setup_commands="pip install x"), "setup_commands: 'pip install x' is not of type 'array'"),
        (lambda c: c.update(setup_commands=[1]), "setup_commands.0: 1 is not of type 'string'"),
        (lambda c: c["docker"].update(image=None), "docker.image: None is not of type 'string'"),
        (lambda c: c.update(auth=None), "auth: None is not of type 'object'"),
        (lambda c: worker(c).update(priority="x"), "tpu_v4_8.priority: 'x' is not of type 'integer'"),
    ],
)
def test_mistakes(edit: Edit, said: str) -> None:
    mistakes = find_mistakes(edited(edit))
    assert any(said in mistake for mistake in mistakes), mistakes


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: None,
        lambda c: worker(c).update(max_workers=128, min_workers=8),
        lambda c: c.update(max_workers=500, idle_timeout_minutes=1),
        lambda c: c["available_node_types"].update(tpu_v4_8_reserved=deepcopy(worker(c))),
    ],
)
def test_what_is_only_more_or_fewer_is_taken_up_as_the_cluster_runs(edit: Edit) -> None:
    check_taken_up(GOOD, edited(edit), "my.yaml")
    assert all(change.effect <= Effect.TAKEN_UP for change in compare(GOOD, edited(edit)))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda c: c["docker"].update(image="other"), "docker changed"),
        (lambda c: c["setup_commands"].append("pip install x"), "setup_commands changed"),
        (lambda c: node(c).update(runtimeVersion="v2"), "tpu_v4_8.node_config changed"),
        (lambda c: worker(c)["resources"].update(CPU=100), "tpu_v4_8.resources changed"),
    ],
)
def test_what_nodes_are_started_with_needs_a_restart(edit: Edit, said: str) -> None:
    check_no_orphans(GOOD, edited(edit), "my.yaml")
    with pytest.raises(Conflict, match=said):
        check_taken_up(GOOD, edited(edit), "my.yaml")


def test_a_topology_is_as_good_as_a_type_and_the_local_provider_needs_no_cloud() -> None:
    assert find_mistakes(edited(lambda c: topology(c, "V4", "2x2x1"))) == []
    provider = {"type": "local", "head_ip": "10.0.0.1", "worker_ips": []}
    assert find_mistakes({"cluster_name": "Any", "provider": provider}) == []


def test_all_mistakes_are_told_at_once_and_each_once() -> None:
    config = edited(lambda c: (node(c).update(x=1), c["provider"].pop("project_id")))
    with pytest.raises(InvalidRequest, match=r"(?s)my\.yaml has 2 mistakes:.*project_id.*unknown key 'x'"):
        check_cluster_file(config, "my.yaml")
    check_cluster_file(GOOD, "my.yaml")
    assert len(find_mistakes(edited(lambda c: worker(c).update(min_workers="4")))) == 1
    text = yaml.safe_dump(edited(lambda c: c["available_node_types"].update(tpu_v4_8=None)))
    with pytest.raises(InvalidRequest, match=r"my.yaml: available_node_types.tpu_v4_8 is not an object: None"):
        parse_cluster_file(text, "my.yaml")


def rename_type(config: dict[str, Any]) -> None:
    types = config["available_node_types"]
    types["tpu_renamed"] = types.pop("tpu_v4_8")


def rename_head(config: dict[str, Any]) -> None:
    types = config["available_node_types"]
    types["head_two"] = types.pop("head_default")
    config["head_node_type"] = "head_two"


@pytest.mark.parametrize(
    ("edit", "said", "loses"),
    [
        (lambda c: c.update(cluster_name="other"), "cluster_name 'marin-us-central2' became 'other'", "orphans"),
        (rename_type, "worker type 'tpu_v4_8' became 'tpu_renamed'", "orphans"),
        (lambda c: c["available_node_types"].pop("tpu_v4_16"), "keep the type, with max_workers: 0, until", "orphans"),
        (lambda c: c["provider"].update(availability_zone="us-central2-c"), "'us-central2-b' became", "orphans"),
        (lambda c: c["provider"].update(project_id="p"), "provider.project_id 'hai-gcp-models' became 'p'", "orphans"),
        (rename_head, "head_node_type 'head_default' became 'head_two'", "all of its jobs"),
    ],
)
def test_what_would_leave_orphans_or_end_jobs_is_refused_with_the_reason(edit: Edit, said: str, loses: str) -> None:
    with pytest.raises(Conflict) as caught:
        check_no_orphans(GOOD, edited(edit), "my.yaml")
    assert said in str(caught.value)
    assert loses in str(caught.value)
    assert "take the cluster down with its old file first" in str(caught.value)
