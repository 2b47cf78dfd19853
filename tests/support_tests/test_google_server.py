"""The test server of Google's APIs: time, places, what goes wrong, and what it refuses to understand."""

import http.client
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.google.metadata import MAINTENANCE
from support.google.server import Cut, GoogleServer
from support.google.words import QUOTA, STOCK_OUT
from support.rigging.clock import FakeClock

ZONE = "us-east1-d"
NODES = f"/v2/projects/p/locations/{ZONE}/nodes"
QUEUED = f"/v2/projects/p/locations/{ZONE}/queuedResources"
VMS = f"/compute/v1/projects/p/zones/{ZONE}/instances"
NODE = {"acceleratorType": "v5litepod-16", "runtimeVersion": "v2", "labels": {"iris": "c-1"}}
VM = {
    "name": "vm",
    "machineType": f"zones/{ZONE}/machineTypes/n2-standard-8",
    "disks": [{"boot": True}],
    "networkInterfaces": [{"network": "n"}],
    "labels": {"iris": "c-1"},
}


class Asked:
    """Requests to the server; `events` are the machines that start and stop."""

    def __init__(self, server: GoogleServer) -> None:
        self.server, self.events = server, list[str]()
        server.on_boot = lambda machine: self.events.append(f"{machine.name}-{machine.number} up")
        server.on_stop = lambda machine: self.events.append(f"{machine.name}-{machine.number} down")

    def __call__(self, verb: str, path: str, body: Any = None, host: str = "") -> tuple[int, Any]:
        connection = http.client.HTTPConnection(host or self.server.address.removeprefix("http://"), timeout=30)
        try:
            connection.request(verb, path, None if body is None else json.dumps(body), {"Metadata-Flavor": "Google"})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] == b"{" else text.decode()
        finally:
            connection.close()

    def ok(self, verb: str, path: str, body: Any = None) -> Any:
        status, answer = self(verb, path, body)
        assert status == 200, answer
        return answer

    def states(self) -> dict[str, str]:
        self.server.settle()
        records = [*self.server.cloud.nodes.values(), *self.server.cloud.instances.values()]
        return {each["name"].rpartition("/")[2]: each.get("state") or each["status"] for each in records}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ask(clock: FakeClock) -> Iterator[Asked]:
    with GoogleServer(clock.now, operation_s=5, boot_s=60, delete_s=30) as server:
        yield Asked(server)


def test_a_node_boots_and_goes_by_the_clock(ask: Asked, clock: FakeClock) -> None:
    begun = ask.ok("POST", f"{NODES}?nodeId=n", NODE)
    clock.advance(59)
    assert (ask.states(), ask.events) == ({"n": "CREATING"}, [])
    assert not ask.ok("GET", f"/v2/{begun['name']}")["done"]
    clock.advance(1)
    ended = ask.ok("GET", f"/v2/{begun['name']}")
    assert ended["response"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2.Node"
    assert (ask.states(), ask.events) == ({"n": "READY"}, [f"n-{number} up" for number in range(4)])
    hosts = [host["labels"] for host in ask.ok("GET", VMS)["items"]]
    assert hosts == [{"iris": "c-1", "tpu_cores": "4"}] * 4, "Compute Engine lists them, too"
    ask.server.preempt("n", host=2)
    assert (ask.states(), ask.events[4:]) == ({"n": "READY"}, ["n-2 down"])
    ask.ok("DELETE", f"{NODES}/n")
    assert ask.states() == {"n": "DELETING"}
    ask.server.zone(ZONE).stuck_deletes = True
    clock.advance(1000)
    assert ask.states() == {"n": "DELETING"}
    ask.server.zone(ZONE).stuck_deletes = False
    assert ask.states() == {}
    assert ask("GET", f"{NODES}/n")[0] == 404


def test_a_machine_boots_slowly_and_a_stock_out_shows_in_the_operation(ask: Asked, clock: FakeClock) -> None:
    zone = ask.server.zone(ZONE)
    zone.slow_boots = True
    ask.ok("POST", VMS, VM)
    clock.advance(1000)
    assert ask.states() == {"vm": "PROVISIONING"}
    zone.slow_boots, zone.stock_out = False, True
    vm, node = ask.ok("POST", VMS, {**VM, "name": "x"}), ask.ok("POST", f"{NODES}?nodeId=n", NODE)
    assert ask.states() == {"vm": "RUNNING", "x": "PROVISIONING", "n": "CREATING"}
    clock.advance(5)
    assert ask.ok("GET", f"/v2/{node['name']}")["error"]["code"] == 8
    (error,) = ask.ok("GET", vm["selfLink"].partition("googleapis.com")[2])["error"]["errors"]
    assert error["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert ask.states() == {"vm": "RUNNING"}


def test_lists_have_pages_by_name_and_name_what_is_out_of_reach(ask: Asked) -> None:
    ask.server.cloud.page = 2
    for name in "abc":
        ask.ok("POST", f"{NODES}?nodeId={name}", NODE)
        ask.ok("POST", VMS, {**VM, "name": name, "labels": {"iris": f"c-{name}"}})
    ask.ok("POST", "/v2/projects/p/locations/us-west4-a/nodes?nodeId=far", NODE)
    first = ask.ok("GET", NODES)
    ask.server.cloud.nodes.pop(first["nodes"][0]["name"])
    rest = ask.ok("GET", f"{NODES}?pageToken={first['nextPageToken']}")
    assert [each["name"][-1] for each in rest["nodes"]] == ["c"], "what went in between moves no page"
    (vms,) = (zone["instances"] for zone in everywhere(ask, "labels.iris=c-b").values() if "instances" in zone)
    assert [each["name"] for each in vms] == ["b"]
    assert everywhere(ask, "NOT labels.iris:*")[f"zones/{ZONE}"]["warning"]["code"] == "NO_RESULTS_ON_PAGE"
    ask.server.zone(ZONE).unreachable = True
    listed = ask.ok("GET", "/v2/projects/p/locations/-/nodes")
    assert ([each["name"][-3:] for each in listed["nodes"]], listed["unreachable"]) == (["far"], [ZONE])
    assert ask("GET", NODES)[0] == ask("GET", VMS)[0] == 503


def everywhere(ask: Asked, wanted: str) -> dict[str, Any]:
    path = f"/compute/v1/projects/p/aggregated/instances?filter={wanted.replace(' ', '%20')}"
    return dict(ask.ok("GET", path)["items"])


def test_a_queued_resource_waits_for_room_fails_or_is_suspended(ask: Asked, clock: FakeClock) -> None:
    spec = {"parent": NODES[4:-6], "nodeId": "n", "node": {**NODE, "schedulingConfig": {"reserved": True}}}
    wanted = {"tpu": {"nodeSpec": [spec]}, "reservationName": "r"}

    def state() -> str:
        ask.server.settle()
        (queued,) = ask.server.cloud.queued.values()
        return str(queued["state"]["state"])

    ask.server.zone(ZONE).stock_out = True
    ask.ok("POST", f"{QUEUED}?queuedResourceId=q", wanted)
    assert state() == "ACCEPTED"
    clock.advance(5)
    assert state() == "WAITING_FOR_RESOURCES"
    ask.server.zone(ZONE).stock_out = False
    assert (state(), ask.states()) == ("PROVISIONING", {"n": "CREATING"})
    clock.advance(60)
    assert (state(), len(ask.events)) == ("ACTIVE", 4)
    refused = ask.ok("DELETE", f"{QUEUED}/q")["name"]
    assert "not supported when state is ACTIVE" in ask.ok("GET", f"/v2/{refused}")["error"]["message"]
    ask.server.preempt("n")
    assert (state(), ask.states()) == ("SUSPENDED", {})
    ask.ok("DELETE", f"{QUEUED}/q?force=true")
    clock.advance(30)
    ask.server.zone(ZONE).no_reservation = True
    ask.ok("POST", f"{QUEUED}?queuedResourceId=q", wanted)
    clock.advance(5)
    assert state() == "FAILED"


def test_a_request_id_makes_a_repeated_request_one_and_a_token_can_be_asked_for(ask: Asked) -> None:
    begun = [ask.ok("POST", f"{VMS}?requestId=8c1e", VM)["name"] for _ in range(2)]
    assert begun[0] == begun[1]
    ask.server.token = "secret"
    assert ask("GET", VMS)[0] == 401


def test_quota_counts_what_is_listed(ask: Asked) -> None:
    zone = ask.server.zone(ZONE)
    zone.quota = {"TPUV5sLitepodPerProjectPerZoneForTPUAPI": 16, "CPUS": 8}
    ask.ok("POST", f"{NODES}?nodeId=a", NODE)
    status, answer = ask("POST", f"{NODES}?nodeId=b", NODE)
    assert (status, answer) == (429, QUOTA.filled(zone=ZONE).body())
    ask.ok("POST", f"{NODES}?nodeId=spot", {**NODE, "schedulingConfig": {"spot": True}})
    ask.ok("POST", VMS, VM)
    status, answer = ask("POST", VMS, {**VM, "name": "x"})
    assert (status, answer["error"]["message"]) == (403, "Quota 'CPUS' exceeded.  Limit: 8.0 in region us-east1.")


@pytest.mark.parametrize("cut", Cut)
def test_a_connection_breaks_before_or_after_the_effect(ask: Asked, cut: Cut) -> None:
    ask.server.fail_next("POST .../nodes", cut)
    over = threading.Event()

    def release() -> None:
        while not over.wait(0.01):
            ask.server.release()

    releasing = threading.Thread(target=release)
    releasing.start()
    with pytest.raises((http.client.HTTPException, OSError)):
        ask("POST", f"{NODES}?nodeId=n", NODE)
    over.set()
    releasing.join(30)
    assert ask.states() == ({"n": "CREATING"} if cut in (Cut.AFTER, Cut.ANSWER_HANGS) else {})
    ask.server.fail_next("POST .../nodes", STOCK_OUT)
    assert ask("POST", f"{NODES}?nodeId=n", NODE)[0] == (409 if cut in (Cut.AFTER, Cut.ANSWER_HANGS) else 200)


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "words"),
    [
        ("GET", "/v2/projects/p/locations/z/unheard", None, 501, "does not know"),
        ("POST", f"{NODES}?nodeId=n", {**NODE, "lables": {}}, 400, "Unknown name \"lables\" at 'Node'"),
        ("POST", f"{NODES}?nodeId=n", {**NODE, "tags": "x"}, 400, "Invalid value at 'tags'"),
        ("POST", f"{NODES}?nodeId=n", {**NODE, "health": "WELL"}, 400, "Invalid value at 'health'"),
        ("POST", f"{NODES}?nodeID=n", NODE, 400, 'Unknown name "nodeID"'),
        ("POST", VMS, {**VM, "disks": [{"boots": True}]}, 400, "Unknown name \"boots\" at 'disks[0]'"),
    ],
)
def test_what_google_would_not_understand_fails_the_test(
    verb: str, path: str, body: Any, status: int, words: str
) -> None:
    server = GoogleServer().__enter__()
    answered, answer = Asked(server)(verb, path, body)
    assert (answered, words in answer["error"]["message"]) == (status, True)
    with pytest.raises(AssertionError, match=re.escape(words)):
        server.__exit__(None)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (f"{NODES}?nodeId=N", NODE, 400, "invalid name 'N'"),
        (f"{NODES}?nodeId=n", {**NODE, "labels": {"iris": "A"}}, 400, "labels: iris"),
        (f"{NODES}?nodeId=n", {**NODE, "metadata": {"startup-script": "x" * 300000}}, 400, "metadata"),
        (f"{NODES}?nodeId=n", {**NODE, "acceleratorType": "v5litepod-3"}, 400, "was not found in zone us-east1-d"),
        (f"{NODES}?nodeId=n", {**NODE, "runtimeVersion": ""}, 400, "runtimeVersion"),
        (VMS, {**VM, "disks": []}, 400, "Invalid value for field 'resource.disks'"),
        (f"{VMS}/vm/setLabels", {"labels": {}, "labelFingerprint": ""}, 404, "/instances/vm' was not found"),
    ],
)
def test_what_google_refuses(ask: Asked, path: str, body: Any, status: int, words: str) -> None:
    answered, answer = ask("POST", path, body)
    assert (answered, words in answer["error"]["message"]) == (status, True), answer


def test_the_metadata_of_a_machine(ask: Asked, clock: FakeClock) -> None:
    given = {"startup-script": "#!/bin/sh", "enable-guest-attributes": "TRUE"}
    ask.ok("POST", f"{NODES}?nodeId=n", {**NODE, "metadata": given})
    clock.advance(60)
    ask.server.settle()
    machine = ask.server.machines("n")[1]
    root = "/computeMetadata/v1/instance"

    def read(path: str) -> Any:
        return ask("GET", f"{root}/{path}", host=machine.metadata.address)

    assert read("attributes/startup-script") == (200, "#!/bin/sh")
    assert read("attributes/agent-worker-number") == (200, "1")
    assert read("attributes/worker-network-endpoints")[1].split(",")[1] == machine.address
    assert read("attributes/nothing") == (404, "")
    assert read("zone") == (200, f"projects/1037372895180/zones/{ZONE}")
    assert read("service-accounts/default/token")[1]["token_type"] == "Bearer"
    assert (read("preempted"), read("upcoming-maintenance")[0]) == ((200, "FALSE"), 503)
    heard: list[Any] = []
    waiting = threading.Thread(target=lambda: heard.append(read("upcoming-maintenance?wait_for_change=true")))
    waiting.start()
    machine.metadata.wait_for_watchers(1)
    machine.metadata.set("instance/upcoming-maintenance", MAINTENANCE)
    waiting.join(30)
    assert heard[0][1]["maintenance_status"] == "PENDING"
    assert read("preempted?wait_for_change=true&last_etag=5c0&timeout_sec=0")[1] == "FALSE"
    ask("PUT", f"{root}/guest-attributes/iris/phase", "joined", host=machine.metadata.address)
    found = ask.ok("POST", f"{NODES}/n:getGuestAttributes", {"queryPath": "iris/"})["guestAttributes"]
    assert [each.get("queryValue", {}).get("items") for each in found] == [
        None, [{"namespace": "iris", "key": "phase", "value": '"joined"'}], None, None,
    ]  # fmt: skip
    ask.server.warn("n", host=1)
    assert read("preempted") == (200, "TRUE")
    assert machine.metadata.refused == []
