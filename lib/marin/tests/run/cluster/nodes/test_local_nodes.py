"""Machines that are no cloud's are all stopped each time that their cluster is taken down."""

import json
from pathlib import Path

import pytest

from marin.run.cluster.nodes.local import expect_workers_again

pytest.importorskip("ray")

from ray.autoscaler._private.local import config as local_config
from ray.autoscaler._private.local.node_provider import LocalNodeProvider
from ray.autoscaler.tags import NODE_KIND_WORKER, TAG_RAY_NODE_KIND

WORKERS = {TAG_RAY_NODE_KIND: NODE_KIND_WORKER}
PROVIDER = {"type": "local", "head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2", "10.0.0.3"]}
CONFIG = {"cluster_name": "here", "provider": PROVIDER}


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    folder = Path(local_config.get_state_path("here")).parent
    assert folder.is_relative_to(tmp_path)
    folder.mkdir(exist_ok=True)
    return folder


def test_workers_that_an_earlier_down_stopped_are_stopped_again_and_what_else_is_recorded_stays(records: Path) -> None:
    """The next `up` starts them anew, of which Ray's record here does not learn."""
    expect_workers_again(CONFIG)
    expect_workers_again({"cluster_name": "there", "provider": {"type": "gcp"}})
    assert list(records.iterdir()) == [], "without a record and of a cloud nothing is made"
    provider = LocalNodeProvider(PROVIDER, "here")
    provider.set_node_tags("10.0.0.2", {"color": "blue"})
    before = json.loads((records / "cluster-here.state").read_text())
    expect_workers_again(CONFIG)
    assert json.loads((records / "cluster-here.state").read_text()) == before
    for node in provider.nodes_for_teardown(WORKERS):
        provider.terminate_node(node)
    assert provider.nodes_for_teardown(WORKERS) == []
    expect_workers_again(CONFIG)
    assert sorted(provider.nodes_for_teardown(WORKERS)) == ["10.0.0.2", "10.0.0.3"]
