"""The autoscaler's fault simulation with the provider for Google: the test server answers in virtual time."""

import asyncio
import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import httpx2

from iris.autoscale.gcp.api import GoogleApi
from iris.autoscale.gcp.ownership import OWNER_LABEL, Owner
from iris.autoscale.gcp.provider import GcpProvider
from iris.autoscale.model import SliceState
from iris.autoscale.port import SliceProvider
from iris.domain.resources import Device
from iris.domain.scale_groups import CapacityType, GcpTemplate, ScaleGroup
from iris.sim.fleet.cloud import Cloud, Machine
from iris.sim.fleet.run import HOST
from support.google import words
from support.google.cloud import Call, Json
from support.google.server import GoogleServer

OURS: Final = Owner("c", "0123456789ab")
FOREIGN: Final = "one-of-others"
_TPU: Final = GcpTemplate(is_tpu=True, runtime_version="v2")
_V4_8: Final = replace(HOST, device=Device("tpu", "v4-8", 4))
_V4_16: Final = replace(HOST, device=Device("tpu", "v4-16", 4))
TPUS: Final = (
    ScaleGroup("one", _V4_8, 1, 1, 4, zone="us-east1-d", template=_TPU, capacity_type=CapacityType.SPOT),
    ScaleGroup("two", _V4_16, 2, 0, 2, zone="us-central2-b", template=_TPU, priority=200),
    ScaleGroup(
        "held", _V4_8, 1, 0, 4, zone="us-east1-d", template=_TPU, priority=90, capacity_type=CapacityType.RESERVED
    ),
)
_VM: Final = GcpTemplate(machine_type="n2-standard-8")
VMS: Final = (
    ScaleGroup("one", HOST, 1, 1, 8, zone="us-east1-b", template=_VM),
    ScaleGroup("spot", HOST, 1, 0, 8, zone="us-east1-c", template=_VM, priority=200, capacity_type=CapacityType.SPOT),
)
_EPOCH_S: Final = 1_700_000_000
_REFUSALS: Final = (words.QUOTA, words.RATE, words.VM_QUOTA, words.VM_RATE, words.UNAVAILABLE, words.UNAUTHENTICATED)
_LISTS: Final = ("nodes", "queuedResources", "instances")


@dataclass
class GoogleCloud(Cloud):
    """The test server as the simulation's cloud, with a machine of another cluster."""

    scale_groups: ClassVar[tuple[ScaleGroup, ...]] = TPUS

    def __post_init__(self) -> None:
        self.server = GoogleServer(lambda: _EPOCH_S + self.now_s(), operation_s=5)
        body = {
            "acceleratorType": "v4-8",
            "runtimeVersion": "v2",
            "labels": {OWNER_LABEL: "c-ba9876543210", "iris-group": "one"},
        }
        self.server.answer("POST", "/v2/projects/p/locations/us-east1-d/nodes", {"nodeId": FOREIGN}, body)
        self.server.on_call = self._check
        self._deleted: set[str] = set()

    def provider(self) -> SliceProvider:
        api = GoogleApi("http://google", deadline_s=15, transport=_Wire(self))
        return GcpProvider(api, OURS, "p", self.scale_groups, lambda order: order.name)

    def present(self) -> dict[str, Machine]:
        self.server.settle()
        cloud = self.server.cloud
        self.machines = {}
        for records in (cloud.queued, cloud.nodes, cloud.instances):
            for full, record in records.items():
                labels = _labels(record)
                if labels[OWNER_LABEL] == OURS.label:
                    self.machines[full.rpartition("/")[2]] = _machine(labels["iris-group"], record)
        if f"projects/p/locations/us-east1-d/nodes/{FOREIGN}" not in cloud.nodes:
            self.violations.append("the machine of another cluster is gone")
        self.violations += self.server.defects
        self.server.defects.clear()
        return self.machines

    def lose(self, name: str) -> None:
        if name in {owner.rpartition("/")[2] for owner in self.server.cloud.machines}:
            self.server.preempt(name)

    def _check(self, call: Call) -> None:
        if call.method.verb == "DELETE":
            name = call.path.rpartition("/")[2]
            self._note("delete", name, SliceState.LEAVING)
            self._deleted.add(name)
        elif call.method.verb == "POST":
            name = call.query.get("nodeId") or call.query.get("queuedResourceId") or call.body["name"]
            if name in self.present():
                return  # a lost answer is asked for again
            self._note("create", name, SliceState.REQUESTED)
            self.made[name] = 1
            if name in self._deleted:
                self.violations.append(f"{name} is created again after it was deleted")


@dataclass
class VmCloud(GoogleCloud):
    """The same for virtual machines."""

    scale_groups: ClassVar[tuple[ScaleGroup, ...]] = VMS


class _Wire(httpx2.AsyncBaseTransport):
    def __init__(self, cloud: GoogleCloud) -> None:
        self._cloud = cloud

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        cloud, server = self._cloud, self._cloud.server
        source, weather = cloud.source, cloud.weather
        verb, path, query = request.method, request.url.path, dict(request.url.params)
        await asyncio.sleep(source.uniform(*weather.delay_s))
        if source.random() < weather.does_nothing:
            await asyncio.sleep(1e9)
        if source.random() < weather.raises:
            raise httpx2.ConnectError("reset")
        if source.random() < weather.refuses:
            server.fail_next(f"{verb} ...", source.choice(_REFUSALS))
        elif verb == "POST" and source.random() < weather.late_refusal:
            server.fail_next("POST ...", words.VM_STOCK_OUT if "compute" in path else words.STOCK_OUT)
        server.cloud.boot_s = source.uniform(*weather.boot_s)
        server.cloud.delete_s = source.uniform(*weather.delete_s)
        for group in cloud.scale_groups:
            server.zone(group.zone).unreachable = verb == "GET" and source.random() < weather.hides_a_group
        status, answer = server.answer(verb, path, query, json.loads(request.content or b"{}")) or (503, {})
        if verb == "GET" and path.rpartition("/")[2] in _LISTS:
            self._lag(answer)
        if source.random() < weather.loses_answer:
            await asyncio.sleep(source.choice((0, 1e9)))
            raise httpx2.ReadError("reset")
        await asyncio.sleep(source.uniform(*weather.delay_s))
        return httpx2.Response(status, json=answer)

    def _lag(self, answer: Json) -> None:
        """Leave records out of a list."""
        source, lags = self._cloud.source, self._cloud.weather.lags
        lists = [answer, *answer.get("items", {}).values()]
        for field in _LISTS:
            for each in lists:
                if field in each:
                    each[field] = [record for record in each[field] if source.random() >= lags]


def _labels(record: Json) -> dict[str, str]:
    labels: dict[str, str] = (record["tpu"]["nodeSpec"][0]["node"] if "tpu" in record else record)["labels"]
    return labels


def _machine(group: str, record: Json) -> Machine:
    state = record.get("status") or record["state"]
    state = state["state"] if isinstance(state, dict) else state
    is_ready = state in ("READY", "RUNNING")
    return Machine(group, 0 if is_ready else math.inf, gone_s=state in ("DELETING", "STOPPING"))
