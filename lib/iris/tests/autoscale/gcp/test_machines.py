"""The controller's machine, what hosts tell, the cluster's id and credentials."""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import google.auth
import httpx2
import pytest
from google.auth.credentials import Credentials
from google.auth.exceptions import RefreshError

from iris.autoscale.gcp.api import GoogleApi
from iris.autoscale.gcp.inventory import Inventory
from iris.autoscale.gcp.machines import (
    controller_place,
    create_controller,
    read_guest_attributes,
    read_serial_port,
)
from iris.autoscale.gcp.ownership import Owner, cluster_id, label_value
from iris.autoscale.gcp.reading import Kind, Place
from iris.autoscale.model import Outcome
from iris.autoscale.port import Phase
from iris.autoscale.rules import ControllerHost
from rigging.errors import InvalidRequest, MarinError
from support.google import words
from support.google.server import GoogleServer

OURS: Final = Owner("My_Cluster", "0123456789ab")
HOST: Final = ControllerHost("us-central1-a", "n2-standard-8", 200, "c@p")
PLACE: Final = controller_place(OURS, "p", HOST)


class Desk:
    """What an operator's command has: a client and the inventory of project p."""

    def __init__(self, server: GoogleServer) -> None:
        self.server, self.runner = server, asyncio.Runner()
        self.api = GoogleApi(server.address, deadline_s=20)
        self.inventory = Inventory(self.api, OURS, {"p": ()})

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def start(self, owner: Owner = OURS) -> Any:
        return self.run(create_controller(self.api, owner, PLACE, HOST, "start", poll_s=0))


@pytest.fixture
def desk() -> Iterator[Desk]:
    with GoogleServer() as server:
        made = Desk(server)
        yield made
        made.run(made.api.close())
        made.runner.close()


def test_the_controller_is_made_once_found_and_deleted(desk: Desk) -> None:
    assert not desk.run(desk.inventory.survey()).found
    assert [desk.start().outcome for _ in range(2)] == [Outcome.DONE, Outcome.DONE]
    (found,) = desk.run(desk.inventory.survey()).found
    assert found.is_controller
    assert (found.place, found.phase, found.type) == (PLACE, Phase.READY, "n2-standard-8")
    assert str(PLACE) == "instance my-cluster-controller in us-central1-a (p)"
    assert found.external_addresses == found.addresses != ()
    assert desk.run(desk.inventory.delete_all([PLACE])) == {PLACE: desk.start(OURS)}
    assert desk.start(Owner("My_Cluster", "ba9876543210")).outcome is Outcome.CONFIG


def test_a_controller_that_cannot_be_made(desk: Desk) -> None:
    desk.server.fail_next("POST .../instances", words.VM_STOCK_OUT)
    assert desk.start().outcome is Outcome.STOCK_OUT
    desk.server.fail_next("POST .../instances", words.VM_FORBIDDEN)
    assert desk.start().outcome is Outcome.PERMISSION


def test_what_hosts_tell(desk: Desk) -> None:
    desk.start()
    (machine,) = desk.server.machines(PLACE.name)
    assert desk.run(read_guest_attributes(desk.api, PLACE, "iris")) == ()
    machine.serial, machine.guest["iris", "phase"] = "booted\n", "joining"
    assert desk.run(read_guest_attributes(desk.api, PLACE, "iris")) == ({"phase": "joining"},)
    assert desk.run(read_serial_port(desk.api, PLACE, 4)) == ("ed\n", 7)
    node = Place(Kind.NODE, "p", "us-east1-d", "n")
    body = {"acceleratorType": "v5litepod-16", "runtimeVersion": "v2"}
    desk.run(desk.api.call("POST", node.parent, body, {"nodeId": "n"}))
    assert desk.run(read_guest_attributes(desk.api, node, "iris")) == ()
    desk.server.machines("n")[2].guest["iris", "phase"] = "joined"
    assert desk.run(read_guest_attributes(desk.api, node, "iris")) == ({}, {}, {"phase": "joined"}, {})
    with pytest.raises(
        MarinError, match=r"queued resource n in z \(p\): no guest attributes: Resource .* was not found"
    ):
        desk.run(read_guest_attributes(desk.api, Place(Kind.QUEUED, "p", "z", "n"), "iris"))


def test_a_clusters_id_is_made_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        (found,) = set(pool.map(cluster_id, [str(tmp_path)] * 8))
    assert cluster_id(f"{tmp_path}/") == found
    assert Owner("Ünï Cluster", found).label == f"-n--cluster-{found}"
    assert len(Owner("x" * 99, found).label) == len(label_value("x" * 99)) == 63
    (tmp_path / "cluster-id").write_text("")
    with pytest.raises(InvalidRequest, match="cluster-id: '' is no cluster id: restore the file"):
        cluster_id(str(tmp_path))


class Keys(Credentials):  # type: ignore[misc,no-untyped-call]
    """Credentials that count refreshes, and fail once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.refreshes = 0

    def refresh(self, request: Any) -> None:
        self.refreshes += 1
        if self.refreshes == 1:
            raise RefreshError("reauthentication is needed")  # type: ignore[no-untyped-call]
        self.token = "t"


def test_credentials_are_refreshed_once_for_all_calls_and_a_failure_is_told() -> None:
    keys = Keys()

    async def calls() -> None:
        with GoogleServer() as server:
            api = GoogleApi(server.address, keys)
            first = await api.call("GET", "v2/projects/p/locations/z/nodes")
            assert (first.answer.outcome, "reauthentication is needed" in first.answer.words) == (Outcome.UNKNOWN, True)
            others = await asyncio.gather(*(api.call("GET", "v2/projects/p/locations/z/nodes") for _ in range(5)))
            assert ([each.status for each in others], keys.refreshes) == ([200] * 5, 2)
            await api.close()

    asyncio.run(calls())


def test_after_another_login_the_new_credentials_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ["refused", "good"]

    def default(scopes: list[str]) -> tuple[Keys, str]:
        keys = Keys()
        keys.refreshes = 1
        monkeypatch.setattr(keys, "refresh", lambda _: setattr(keys, "token", tokens.pop(0)))
        return keys, scopes[0]

    def answered(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200 if request.headers["authorization"] == "Bearer good" else 401, json={})

    async def calls() -> None:
        api = GoogleApi(transport=httpx2.MockTransport(answered))
        statuses = [(await api.call("GET", "v2/projects/p/locations/z/nodes")).status for _ in range(3)]
        assert (statuses, tokens) == ([401, 200, 200], [])
        await api.close()

    monkeypatch.setattr(google.auth, "default", default)
    asyncio.run(calls())
