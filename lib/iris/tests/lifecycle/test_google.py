"""Starts and stops of clusters at Google, on the test server."""

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from iris.autoscale.gcp.api import GoogleApi
from iris.autoscale.gcp.ownership import Owner
from iris.autoscale.gcp.provider import GcpProvider
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import SliceOrder
from iris.autoscale.rules import ControllerHost
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import CapacityType, GcpTemplate, ScaleGroup
from iris.lifecycle.google import GoogleMachines
from iris.lifecycle.machines import Found, Machine
from iris.lifecycle.start import Waiting, await_controller, restart_controller, start_controller
from iris.lifecycle.stop import Left, delete_all
from rigging.errors import Conflict, Unavailable
from support.google import words
from support.google.server import GoogleServer

OURS: Final = Owner("c", "0123456789ab")
HOST: Final = ControllerHost("us-central1-a")
TPU: Final = Resources(4000, 2**34, 2**34, Device("tpu", "v5litepod-4", 4))
TEMPLATE: Final = GcpTemplate(is_tpu=True)
GROUPS: Final = (
    ScaleGroup("spot", TPU, zone="us-east5-a", template=TEMPLATE),
    ScaleGroup("kept", TPU, zone="us-east5-b", capacity_type=CapacityType.RESERVED, template=TEMPLATE),
    ScaleGroup(
        "cpu", Resources(4000, 2**34, 2**34), zone="us-east5-a", template=GcpTemplate(machine_type="n2-standard-4")
    ),
)


class Desk:
    """An operator's machines, in an event loop whose sleeps take no time; `waits` counts them."""

    def __init__(self, server: GoogleServer) -> None:
        self.server, self.runner = server, asyncio.Runner()
        self.api = GoogleApi(server.address, deadline_s=20)
        self.machines = GoogleMachines(self.api, OURS, "p", HOST, GROUPS, poll_s=0)
        self.waits, self.told = 0, list[str]()
        self.answering = False

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def find(self) -> Found:
        found: Found = self.run(self.machines.find())
        return found

    def create(self, *slices: tuple[str, ScaleGroup], owner: Owner = OURS) -> None:
        provider = GcpProvider(self.api, owner, "p", GROUPS, lambda order: "")

        async def all_of_them() -> list[Answer]:
            return await asyncio.gather(*(provider.create(SliceOrder(*each)) for each in slices))

        assert self.run(all_of_them()) == [Answer(Outcome.DONE)] * len(slices)

    def start(self) -> Machine:
        made: Machine = self.run(start_controller(self.machines, "script", self.waiting))
        return made

    def stop(self, deadline_s: float = 300) -> Left:
        work = delete_all(self.machines, self.find(), lambda _: None, deadline_s=deadline_s, sleep=self.sleep)
        left: Left = self.run(work)
        return left

    @property
    def waiting(self) -> Waiting:
        return Waiting(self.trouble, self.told.append, deadline_s=60, failed_s=9, sleep=self.sleep)

    async def trouble(self, _: Machine) -> str:
        return "" if self.answering else "refused"

    async def sleep(self, _: float) -> None:
        self.waits += 1


@pytest.fixture
def desk() -> Iterator[Desk]:
    with GoogleServer() as server:
        made = Desk(server)
        yield made
        made.run(made.api.close())
        made.runner.close()


def deletes(desk: Desk) -> list[str]:
    return [request.rpartition("/")[2] for request in desk.server.requests if request.startswith("DELETE")]


def posts(desk: Desk) -> list[str]:
    return [request.rpartition("/")[2] for request in desk.server.requests if request.startswith("POST")]


def test_a_stop_deletes_all_kinds_in_one_round_and_nothing_of_others(desk: Desk) -> None:
    desk.answering = True
    desk.start()
    desk.create(*((f"spot-{number}", GROUPS[0]) for number in range(198)), ("kept-0", GROUPS[1]), ("cpu-0", GROUPS[2]))
    desk.create(("others", GROUPS[0]), owner=Owner("c", "ba9876543210"))
    found = desk.find()
    assert (len(found.machines), found.machines[-1].name) == (201, "c-controller")
    assert not desk.stop()
    assert (len(deletes(desk)), desk.waits) == (201, 2), "one round, then two lists without any"
    assert [name.rpartition("/")[2] for name in desk.server.cloud.nodes] == ["others"]
    assert (desk.server.cloud.queued, desk.server.cloud.instances) == ({}, {})
    desk.waits = 0
    assert not desk.stop()
    assert desk.waits == 0


def test_a_stop_says_what_is_left_and_why_and_the_next_one_finishes_it(desk: Desk) -> None:
    desk.create(("spot-0", GROUPS[0]))
    desk.server.zone("us-east5-a").stuck_deletes = True
    left = desk.stop(60)
    (why,) = left.machines.values()
    assert why == "its deletion has begun, but it is still listed as DELETING"
    desk.server.zone("us-east5-a").stuck_deletes = False
    desk.server.fail_next("DELETE .../nodes/spot-1", words.FORBIDDEN, 99)
    desk.create(("spot-1", GROUPS[0]))
    desk.waits = 0
    left = desk.stop()
    assert [str(machine) for machine in left.machines] == ["slice spot-1"]
    assert next(iter(left.machines.values())).startswith("permission: ")
    assert desk.waits <= 2, "what is refused for good is not asked for until the deadline"
    desk.server.zone("us-east5-b").unreachable = True
    assert "us-east5-b" in desk.stop().unlisted[0]


def test_a_start_finds_what_an_earlier_one_made_and_tells_its_phases(desk: Desk) -> None:
    with pytest.raises(
        Unavailable, match=r"controller c-controller .* does not answer after 60 s: refused; its phase: none yet"
    ):
        desk.start()
    (machine,) = desk.server.machines("c-controller")
    machine.guest["iris", "phase"], machine.serial = "installing", "one\ntwo\n"
    with pytest.raises(Unavailable, match=r"its phase: installing.*(?s:ends with:\n  one\n  two)"):
        desk.start()
    slow = "controller c-controller does not answer yet: refused"
    assert desk.told == ["creating the controller's machine", slow, "controller c-controller: installing", slow]
    desk.answering = True
    assert desk.start().addresses
    assert posts(desk) == ["instances"]


def test_a_start_restarts_a_controller_that_failed_or_is_stopped(desk: Desk) -> None:
    desk.answering = True
    desk.start()
    (machine,) = desk.server.machines("c-controller")
    machine.guest["iris", "phase"] = "failed: no wheel"
    desk.start()
    (instance,) = desk.server.cloud.instances.values()
    instance["status"] = "TERMINATED"
    desk.start()
    assert (posts(desk), instance["status"]) == (
        ["instances", "setMetadata", "reset", "setMetadata", "start"],
        "RUNNING",
    )
    desk.answering = False
    with pytest.raises(Unavailable, match="does not answer after 9 s: refused; its phase: failed: no wheel"):
        desk.run(await_controller(desk.machines, desk.waiting))
    controller = desk.find().machines[-1]
    instance["labels"] = {}
    with pytest.raises(Unavailable, match="is not of this cluster: it has no label iris-cluster"):
        desk.run(restart_controller(desk.machines, controller, "", desk.told.append))


def test_a_controller_that_starts_and_fails_in_turn_is_not_waited_for(desk: Desk) -> None:
    desk.answering = True
    desk.start()
    desk.answering = False
    (machine,) = desk.server.machines("c-controller")
    phases = itertools.cycle(["starting", "failed: no disk"])

    async def sleep(_: float) -> None:
        machine.guest["iris", "phase"] = next(phases)

    waiting = replace(desk.waiting, sleep=sleep)
    with pytest.raises(Unavailable, match="does not answer after 24 s: refused; its phase: failed: no disk"):
        desk.run(await_controller(desk.machines, waiting))


def test_a_start_ends_when_another_command_stops_the_cluster(desk: Desk) -> None:
    async def sleep(_: float) -> None:
        desk.server.cloud.instances.clear()

    waiting = replace(desk.waiting, sleep=sleep, deadline_s=9999)
    with pytest.raises(Conflict, match="is gone: another command may have stopped the cluster"):
        desk.run(start_controller(desk.machines, "script", waiting))


def test_a_start_creates_nothing_where_it_cannot_look_and_tells_refusals(desk: Desk) -> None:
    desk.server.fail_next("GET .../aggregated/instances", words.VM_FORBIDDEN)
    with pytest.raises(Unavailable, match="it is not known whether the cluster runs already: virtual machines in all"):
        desk.start()
    desk.server.fail_next("POST .../instances", words.VM_STOCK_OUT)
    with pytest.raises(Unavailable, match="the controller's machine cannot be created: stock-out: "):
        desk.start()
