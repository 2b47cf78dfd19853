"""`cluster down` removes the nodes that `ray down` leaves on Google Cloud, and nothing else."""

from typing import Any

import pytest

from marin.run.cluster.cli.commands import main
from marin.run.cluster.nodes import leftovers
from marin.run.cluster.nodes.google import GoogleNodes
from marin.run.cluster.nodes.leftovers import CloudNode, remove_leftovers
from rigging.errors import Conflict, Unavailable
from support.google.server import GoogleServer
from support.google.words import FORBIDDEN
from support.marin.fake_ray import FakeRay

OURS = "marin-us-central2"
Output = pytest.CaptureFixture[str]


def put(gcp: GoogleServer, name: str, state: str, cluster: str = OURS, kind: str = "worker") -> None:
    labels = {"ray-cluster-name": cluster, "ray-node-type": kind}
    if kind == "head":
        full = f"projects/hai-gcp-models/zones/us-central2-b/instances/{name}"
        gcp.cloud.instances[full] = {"name": name, "status": state, "labels": labels}
    else:
        full = f"projects/hai-gcp-models/locations/us-central2-b/nodes/{name}"
        gcp.cloud.nodes[full] = {"name": full, "state": state, "labels": labels}


def left(gcp: GoogleServer) -> set[str]:
    gcp.settle()
    return {name.rpartition("/")[2] for name in (*gcp.cloud.instances, *gcp.cloud.nodes)}


@pytest.fixture
def filled(gcp: GoogleServer) -> GoogleServer:
    gcp.cloud.page = 2  # Ray's provider reads one page only
    for name, state in (("preempted", "PREEMPTED"), ("repaired", "REPAIRING"), ("ready", "READY")):
        put(gcp, name, state)
    for name, state in (("going", "DELETING"), ("ended", "TERMINATED")):
        put(gcp, name, state)
    put(gcp, "other-preempted", "PREEMPTED", cluster="other")
    put(gcp, "stopped-head", "TERMINATED", kind="head")
    put(gcp, "other-head", "RUNNING", cluster="other", kind="head")
    return gcp


@pytest.mark.process
def test_down_leaves_nothing_of_the_cluster(ray: FakeRay, filled: GoogleServer, capsys: Output) -> None:
    assert main(["down", "--preempted-only", "--workers-only"]) == 3
    assert "exclude each other" in capsys.readouterr().err
    assert main(["down", "--yes"]) == 0
    assert left(filled) == {"other-preempted", "other-head", "going"}
    said = capsys.readouterr().err
    assert "Ray has left slice preempted (PREEMPTED): deleting it" in said
    assert "Ray has left VM stopped-head (TERMINATED): deleting it" in said


@pytest.mark.process
@pytest.mark.parametrize("option", ["--preempted-only", "--workers-only"])
def test_in_a_cluster_that_goes_on_only_what_is_gone_is_removed(
    ray: FakeRay, filled: GoogleServer, option: str
) -> None:
    before = left(filled)
    assert main(["down", "--yes", option]) == 0
    assert before - left(filled) == {"preempted", "ended"}
    assert [words for words in ray.calls() if words[0] == "down" and option == "--preempted-only"] == []


@pytest.mark.process
def test_a_restart_is_not_kept_by_what_is_left(ray: FakeRay, gcp: GoogleServer, capsys: Output) -> None:
    put(gcp, "preempted", "PREEMPTED")
    gcp.fail_next("GET ...", FORBIDDEN, times=1000)
    assert main(["restart", "--yes"]) == 0
    assert "cannot list the cluster's remaining nodes with Google's APIs" in capsys.readouterr().err
    assert ray.calls()[-2][0] in ("up", "exec")
    assert main(["down", "--yes"]) == 5


def test_a_node_that_stays_is_asked_again_ever_more_rarely_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may take minutes, and the quotas of Google's APIs are the whole project's."""
    waits: list[float] = []
    monkeypatch.setattr(leftovers.time, "sleep", waits.append)
    told: list[Any] = []
    wait: dict[str, Any] = {"preempted_only": False, "on_delete": told.append, "poll_interval": 0.25}
    remove_leftovers(Stubborn(10), "c", **wait)
    assert len(told) == 1
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    with pytest.raises(Conflict, match=r"cluster c: VM n \(STOPPING\) still there after 0 s; remove them by hand"):
        remove_leftovers(Stubborn(10**9), "c", timeout=0, **wait)


class Stubborn:
    def __init__(self, asked: int) -> None:
        self.asked = asked

    def list(self) -> list[CloudNode]:
        node = CloudNode("n", "STOPPING", {"ray-cluster-name": "c"}, False)
        return [node] if self.asked else []

    def delete(self, node: CloudNode) -> None:
        self.asked -= 1


def test_they_are_asked_for_in_the_projects_zone() -> None:
    place = {"project_id": "p", "availability_zone": "us-central2-b"}
    token = {"gcp_credentials": {"type": "credentials_token", "credentials": "t"}}
    with pytest.raises(Unavailable, match=r"cannot list the cluster's remaining nodes.*127\.0\.0\.1"):
        GoogleNodes({**place, **token}, endpoint="http://127.0.0.1:9").list()
    assert GoogleNodes(place).urls == (
        "https://tpu.googleapis.com/v2/projects/p/locations/us-central2-b/nodes",
        "https://compute.googleapis.com/compute/v1/projects/p/zones/us-central2-b/instances",
    )
