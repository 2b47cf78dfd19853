"""Slices at Google, on the test server."""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from iris.autoscale.gcp.api import GoogleApi
from iris.autoscale.gcp.ownership import Owner
from iris.autoscale.gcp.provider import GcpProvider
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Listing, Phase, SliceOrder
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import CapacityType, GcpTemplate, ScaleGroup
from support.google import words
from support.google.server import Cut, GoogleServer
from support.rigging.clock import FakeClock

OURS: Final = Owner("c", "0123456789ab")
OTHER: Final = Owner("c", "ba9876543210")
TPU: Final = ScaleGroup(
    "tpu_a",
    Resources(device=Device("tpu", "v5litepod-16", 4)),
    4,
    zone="us-east1-d",
    capacity_type=CapacityType.SPOT,
    template=GcpTemplate(is_tpu=True, service_account="w@p", network="n", tags=("iris",), labels=(("team", "x"),)),
)
RESERVED: Final = replace(
    TPU,
    name="held",
    capacity_type=CapacityType.RESERVED,
    template=GcpTemplate(is_tpu=True, reservation="r1", runtime_version="v2"),
)
GPU: Final = ScaleGroup(
    "gpu",
    Resources(device=Device("gpu", "T4", 2)),
    zone="us-west1-b",
    capacity_type=CapacityType.SPOT,
    template=GcpTemplate(machine_type="n1-standard-8", disk_size_gb=100, disk_type="pd-ssd", subnetwork="s"),
)
CPU: Final = replace(
    GPU,
    name="cpu",
    host=Resources(),
    capacity_type=CapacityType.ON_DEMAND,
    template=GcpTemplate(project_id="other", machine_type="n2-standard-8"),
)
GROUPS: Final = {group.name: group for group in (TPU, RESERVED, GPU, CPU)}
BOOT_S: Final = 60


class Cloud:
    """A provider for OURS and the test server; `other` is another cluster's provider in the same project."""

    def __init__(self, server: GoogleServer, clock: FakeClock) -> None:
        self.server, self.clock = server, clock
        self._runner = asyncio.Runner()
        self.provider, self.other = self.new(OURS), self.new(OTHER)

    def new(self, owner: Owner) -> GcpProvider:
        api = GoogleApi(self.server.address, deadline_s=20)
        return GcpProvider(api, owner, "p", GROUPS.values(), lambda order: f"start {order.name}")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def create(self, group: ScaleGroup, name: str = "s-0", provider: GcpProvider | None = None) -> Answer:
        answer: Answer = self.run((provider or self.provider).create(SliceOrder(name, group)))
        return answer

    def delete(self, group: ScaleGroup, name: str = "s-0") -> Answer:
        answer: Answer = self.run(self.provider.delete(name, group))
        return answer

    def list(self) -> Listing:
        listing: Listing = self.run(self.provider.list())
        return listing

    def phases(self) -> dict[str, tuple[str, Phase]]:
        return {name: (found.group, found.phase) for name, found in self.list().found.items()}

    def close(self) -> None:
        self.run(self.provider.close())
        self.run(self.other.close())
        self._runner.close()


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    clock = FakeClock()
    with GoogleServer(clock.now, operation_s=5, boot_s=BOOT_S, delete_s=30) as server:
        made = Cloud(server, clock)
        yield made
        made.close()


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_a_slice_is_made_once_listed_and_deleted(cloud: Cloud, group: ScaleGroup) -> None:
    assert cloud.create(group).outcome is Outcome.DONE
    assert cloud.phases() == {"s-0": (group.name, Phase.CREATING)}
    assert cloud.create(group).outcome is Outcome.DONE  # an answer was lost, and the caller asks again
    cloud.clock.advance(BOOT_S)
    cloud.server.settle()
    cloud.clock.advance(BOOT_S)
    assert cloud.phases() == {"s-0": (group.name, Phase.READY)}
    assert len(cloud.list().found["s-0"].addresses) == group.hosts_per_slice
    assert cloud.delete(group).outcome is Outcome.DONE
    cloud.clock.advance(1)
    phase = Phase.BROKEN if group in (GPU, CPU) else Phase.DELETING  # an instance is STOPPING
    assert cloud.phases() == {"s-0": (group.name, phase)}
    assert cloud.delete(group).outcome is Outcome.DONE
    cloud.clock.advance(30)
    assert cloud.phases() == {}
    assert cloud.delete(group).outcome is Outcome.DONE
    assert not cloud.server.cloud.nodes | cloud.server.cloud.queued | cloud.server.cloud.instances


FAILS: Final = [
    (TPU, "POST .../nodes", words.STOCK_OUT, Outcome.STOCK_OUT, "There is no more capacity in the zone"),
    (TPU, "POST .../nodes", words.PREEMPTED_WHILE_CREATED, Outcome.STOCK_OUT, "in state PREEMPTED"),
    (RESERVED, "POST .../queuedResources", words.INTERNAL, Outcome.UNKNOWN, "internal error"),
    (GPU, "POST .../instances", words.VM_STOCK_OUT, Outcome.STOCK_OUT, "not have enough resources"),
    (GPU, "POST .../instances", words.VM_QUOTA_EXCEEDED, Outcome.QUOTA, "Quota 'CPUS' exceeded"),
]


@pytest.mark.parametrize(("group", "request_", "failure", "outcome", "text"), FAILS)
def test_what_fails_after_it_was_accepted_is_listed_until_it_is_deleted(
    cloud: Cloud, group: ScaleGroup, request_: str, failure: words.Failure, outcome: Outcome, text: str
) -> None:
    cloud.server.fail_next(request_, failure)
    assert cloud.create(group).outcome is Outcome.DONE
    cloud.clock.advance(5)
    for _ in range(2):
        found = cloud.list().found["s-0"]
        assert (found.group, found.phase, found.outcome) == (group.name, Phase.BROKEN, outcome)
        assert text in found.words
    assert cloud.delete(group).outcome is Outcome.DONE
    assert cloud.phases() == {}


def test_a_reservation_that_lacks_room(cloud: Cloud) -> None:
    zone = cloud.server.zone(RESERVED.zone)
    zone.stock_out = True
    assert cloud.create(RESERVED).outcome is Outcome.DONE
    cloud.clock.advance(5)
    assert cloud.phases() == {"s-0": ("held", Phase.CREATING)}  # it may wait for hours
    zone.stock_out, zone.no_reservation = False, True
    found = cloud.list().found["s-0"]
    assert (found.phase, found.outcome) == (Phase.BROKEN, Outcome.STOCK_OUT)
    assert "Insufficient reserved capacity" in found.words
    assert cloud.delete(RESERVED).outcome is Outcome.DONE
    assert "DELETE /v2/projects/p/locations/us-east1-d/queuedResources/s-0" in cloud.server.requests


@pytest.mark.parametrize(
    ("request_", "refusal", "outcome"),
    [
        ("POST .../nodes", words.QUOTA, Outcome.QUOTA),
        ("POST .../nodes", words.RATE, Outcome.RATE),
        ("POST .../nodes", words.NOT_ENABLED, Outcome.PERMISSION),
    ],
)
def test_what_is_refused_is_not_there(cloud: Cloud, request_: str, refusal: words.Refusal, outcome: Outcome) -> None:
    cloud.server.fail_next(request_, refusal)
    assert cloud.create(TPU).outcome is outcome
    assert cloud.phases() == {}


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_another_cluster_is_left_alone(cloud: Cloud, group: ScaleGroup) -> None:
    assert cloud.create(group, provider=cloud.other).outcome is Outcome.DONE
    cloud.clock.advance(BOOT_S)
    cloud.server.settle()
    assert cloud.phases() == {}
    for answer in (cloud.create(group), cloud.delete(group)):
        assert answer.outcome is Outcome.CONFIG
        assert "not of this cluster: it has the label iris-cluster=c-ba9876543210; ours is c-0123" in answer.words
    assert not [request for request in cloud.server.requests if request.startswith("DELETE")]
    renamed = cloud.new(replace(OTHER, cluster="renamed"))
    for provider in (cloud.other, renamed):
        assert cloud.run(provider.list()).found["s-0"].group == group.name
    cloud.run(renamed.close())


def test_a_slice_whose_group_left_the_file_is_deleted_where_it_is(cloud: Cloud) -> None:
    cloud.create(replace(TPU, name="old", zone="us-west4-a"))
    assert cloud.delete(ScaleGroup("old", Resources())).outcome is Outcome.UNKNOWN  # no list has told where
    assert cloud.phases() == {"s-0": ("old", Phase.CREATING)}
    assert cloud.delete(ScaleGroup("old", Resources())).outcome is Outcome.DONE
    for wrong in (ScaleGroup("old", Resources()), replace(GPU, hosts_per_slice=2)):
        assert cloud.create(wrong).outcome is Outcome.CONFIG


def test_a_list_takes_the_same_requests_however_many_slices(cloud: Cloud) -> None:
    for number in range(7):
        cloud.create(TPU, f"a-{number}")
        cloud.create(replace(GPU, zone="us-west1-c"), f"b-{number}")
    cloud.clock.advance(BOOT_S)
    cloud.server.requests.clear()
    assert len(cloud.list().found) == 14
    assert len(cloud.server.requests) == 6  # two projects: nodes, queued resources and instances of all zones
    cloud.server.cloud.page = 3
    assert len(cloud.list().found) == 14


def test_a_zone_out_of_reach_says_nothing_of_its_slices(cloud: Cloud) -> None:
    cloud.create(TPU, "a-0")
    cloud.create(GPU, "b-0")
    cloud.clock.advance(BOOT_S)
    cloud.list()
    cloud.server.zone(TPU.zone).unreachable = True
    listing = cloud.list()
    assert set(listing.found) == {"b-0"}
    assert set(listing.unlisted_groups) == {"tpu_a", "held"}
    assert "cannot reach us-east1-d" in listing.unlisted_groups["tpu_a"].words
    cloud.server.fail_next("GET .../aggregated/instances", words.UNAVAILABLE, times=2)
    assert set(cloud.list().unlisted_groups) == set(GROUPS)
    assert cloud.delete(ScaleGroup("gone", Resources()), "a-0").outcome is Outcome.DONE  # its place is still known


def test_an_api_that_is_not_enabled_has_nothing(cloud: Cloud) -> None:
    cloud.server.fail_next("GET ...v2/projects...", words.NOT_ENABLED, times=4)
    assert cloud.list() == Listing({}, {})


def test_zones_are_asked_one_by_one_where_not_all_can_be(cloud: Cloud) -> None:
    cloud.create(TPU)
    cloud.server.fail_next("GET .../locations/-/nodes", words.NO_LOCATION, times=2)
    cloud.server.fail_next("GET .../locations/-/queuedResources", words.NO_LOCATION, times=2)
    listing = cloud.list()
    assert set(listing.found) == {"s-0"}
    assert "GET /v2/projects/p/locations/us-west1-b/nodes" in cloud.server.requests
    assert not {"tpu_a", "held"} & set(listing.unlisted_groups)


def test_a_preempted_slice_is_broken(cloud: Cloud) -> None:
    cloud.create(TPU)
    cloud.create(GPU, "s-1")
    cloud.clock.advance(BOOT_S)
    cloud.list()
    cloud.server.preempt("s-0")
    cloud.server.preempt("s-1")
    listing = cloud.list()
    assert set(listing.found) == {"s-0"}  # the instance is deleted by Google
    assert (listing.found["s-0"].phase, listing.found["s-0"].words) == (Phase.BROKEN, "the node is PREEMPTED")


def test_a_lost_connection_is_tried_again_until_the_deadline(cloud: Cloud) -> None:
    cloud.server.fail_next("POST .../nodes", Cut.AFTER)
    assert cloud.create(TPU).outcome is Outcome.DONE
    cloud.server.fail_next("GET .../nodes/s-0", Cut.BEFORE, times=2)
    answer = cloud.delete(TPU)
    assert answer.outcome is Outcome.UNKNOWN
    assert "/nodes/s-0" in answer.words
    hasty = GoogleApi(cloud.server.address, deadline_s=0.05)
    cloud.server.fail_next("GET .../nodes/s-0", Cut.HANGS)
    reply = cloud.run(hasty.call("GET", "v2/projects/p/locations/us-east1-d/nodes/s-0"))
    assert reply.answer.words.endswith("/nodes/s-0: no answer in 0.05 s")
    cloud.run(hasty.close())


def test_what_is_sent(cloud: Cloud) -> None:
    cloud.create(TPU, "a-0")
    cloud.create(RESERVED, "b-0")
    cloud.create(GPU, "c-0")
    node = cloud.server.cloud.nodes["projects/p/locations/us-east1-d/nodes/a-0"]
    labels = {"iris-cluster": "c-0123456789ab", "iris-group": "tpu_a"}
    assert node["labels"] == {"team": "x", **labels}
    assert (node["schedulingConfig"], node["runtimeVersion"]) == ({"spot": True}, "v2-alpha-tpuv5-lite")
    assert node["metadata"] == {"startup-script": "start a-0", "enable-guest-attributes": "TRUE"}
    queued = cloud.server.cloud.queued["projects/p/locations/us-east1-d/queuedResources/b-0"]
    assert queued["reservationName"] == "projects/p/locations/us-east1-d/reservations/r1"
    assert queued["tpu"]["nodeSpec"][0]["node"]["labels"] == {**labels, "iris-group": "held"}
    instance = cloud.server.cloud.instances["projects/p/zones/us-west1-b/instances/c-0"]
    kind = "zones/us-west1-b/acceleratorTypes/nvidia-tesla-t4"
    assert instance["guestAccelerators"] == [{"acceleratorType": kind, "acceleratorCount": 2}]
    assert instance["scheduling"] == {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
    assert instance["networkInterfaces"][0]["subnetwork"] == "regions/us-west1/subnetworks/s"
    assert instance["disks"][0]["initializeParams"]["diskType"] == "zones/us-west1-b/diskTypes/pd-ssd"
