"""A real controller makes machines on the test server of Google's APIs; their workers are played."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.autoscale.book import SliceRows
from iris.autoscale.fleet import Fleet
from iris.autoscale.gcp.api import GoogleApi
from iris.autoscale.gcp.ownership import Owner
from iris.autoscale.gcp.provider import GcpProvider
from iris.autoscale.model import worker_id_of
from iris.autoscale.rules import AutoscaleRules
from iris.autoscale.runtime import Autoscaler
from iris.controller.access.credentials import Credentials
from iris.controller.config.controller_config import ControllerConfig
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import GROUP_ATTRIBUTE, CapacityType, GcpTemplate, ScaleGroup
from iris.rpc.convert_job import resources_to_wire
from iris.rpc.generated import iris_pb2 as pb
from rigging.clock import unix_ms
from support.google.cloud import Machine
from support.google.server import GoogleServer
from support.iris.controller import RunningController
from support.iris.worker import ScriptedWorker

HOST = Resources(4000, 8 << 30, 8 << 30, Device("tpu", "v5litepod-16", 4))
EAST = ScaleGroup(
    "east", HOST, 4, max_slices=2, zone="us-east1-d", priority=1,
    capacity_type=CapacityType.SPOT, template=GcpTemplate(is_tpu=True),
)  # fmt: skip
WEST = replace(EAST, name="west", zone="us-west4-a", priority=2)
RULES = AutoscaleRules(look_s=0.1, idle_s=0.5, call_deadline_s=10)


class Hosts:
    """The workers of the server's machines."""

    def __init__(self, server: GoogleServer) -> None:
        self.workers: dict[str, ScriptedWorker] = {}
        self.controller: RunningController | None = None
        self.scripts: list[str] = []
        server.on_boot, server.on_stop = self._boot, self._stop

    def _boot(self, machine: Machine) -> None:
        assert self.controller is not None
        self.scripts.append(machine.attributes["startup-script"])
        name = worker_id_of(machine.name, machine.number)
        group = "east" if "east" in machine.name else "west"
        attributes = {"slice": machine.name, "tpu-name": machine.name, GROUP_ATTRIBUTE: group, "zone": machine.zone}
        token, capacity = self.controller.worker_token(name), resources_to_wire(HOST)
        self.workers[name] = ScriptedWorker(
            self.controller.address, token, name, capacity=capacity, attributes=attributes
        )

    def _stop(self, machine: Machine) -> None:
        worker = self.workers.pop(worker_id_of(machine.name, machine.number), None)
        if worker is not None:
            worker.disconnect()

    def starts(self) -> list[str]:
        return sorted(start.attempt_id for worker in list(self.workers.values()) for start in worker.starts)


@pytest.fixture
def server() -> Iterator[GoogleServer]:
    with GoogleServer(boot_s=0.2, delete_s=0.1) as found:
        yield found


@pytest.mark.process
def test_a_gang_from_nothing_in_the_second_zone_and_again_after_a_loss(
    server: GoogleServer, tmp_path: Path, connect: Any
) -> None:
    server.zone("us-east1-d").stock_out = True
    hosts = Hosts(server)
    config = ControllerConfig(
        tmp_path / "state", scale_groups=(EAST, WEST), autoscale=RULES, worker_timeout_s=6, disk_reserve_bytes=0
    )
    config.state_dir.mkdir()
    server.zone("us-west4-a").slow_boots = True

    def make(rows: SliceRows, credentials: Credentials) -> Autoscaler:
        api, owner = GoogleApi(server.address), Owner("big", "0123456789ab")
        provider = GcpProvider(api, owner, "p", (EAST, WEST), lambda order: f"join {order.join_token}")

        def token(name: str, group: ScaleGroup) -> str:
            return credentials.create_for_slice(name, group.hosts_per_slice, 60_000)

        fleet = Fleet((EAST, WEST), RULES, "big-", join_token=token)
        return Autoscaler(provider, rows, fleet, unix_ms)

    def begin() -> RunningController:
        hosts.controller = RunningController(config, make)
        return hosts.controller

    controller = begin()
    user = connect(controller)
    try:
        need = {"cpu_millis": 1000, "device": pb.Device(kind="tpu", variant="v5litepod-16", count=4)}
        user.submit("/ann/gang", resources=pb.Resources(**need), replicas=4, coscheduling_group_by="tpu-name")
        eventually(lambda: any("big-west-0" in name for name in server.cloud.nodes), "the second zone is asked")
        controller.crash()
        controller = begin()
        user = connect(controller)
        server.zone("us-west4-a").slow_boots = False
        eventually(lambda: hosts.starts() == [f"/ann/gang/{index}:0" for index in range(4)], "it runs on one slice")
        assert {worker.rpartition("-w")[0] for worker in hosts.workers} == {"big-west-0"}
        assert all(script.startswith("join iris-join-v1.") for script in hosts.scripts)
        groups = {group.name: group for group in user.cluster.Status(pb.ClusterStatusRequest()).scale_groups}
        assert "There is no more capacity in the zone" in groups["east"].outcome
        server.preempt("big-west-0")
        eventually(lambda: hosts.starts() == [f"/ann/gang/{index}:1" for index in range(4)], "it runs on another one")
        assert {worker.rpartition("-w")[0] for worker in hosts.workers} == {"big-west-1"}
        for worker in list(hosts.workers.values()):
            for start in worker.starts:
                worker.observe(start.attempt_id, pb.TASK_STATE_SUCCEEDED)
        eventually(lambda: not server.cloud.nodes, "idle machines are released")
        slices = user.cluster.ListSlices(pb.ListSlicesRequest()).slices
        assert {found.name for found in slices if found.reason.startswith("unused")} == {"big-west-1"}
    finally:
        controller.stop()
