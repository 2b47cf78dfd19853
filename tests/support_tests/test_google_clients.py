"""Google's own clients read all answers of the test server of Google's APIs, and it reads what they send."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1, tpu_v2

from support.google.server import GoogleServer
from support.google.words import (
    FORBIDDEN,
    NO_RESERVATION_AS_STOCK_OUT,
    NOT_ENABLED,
    QUOTA,
    RATE,
    STOCK_OUT,
    VM_FORBIDDEN,
    VM_QUOTA,
    VM_QUOTA_EXCEEDED,
    VM_RATE,
    VM_STOCK_OUT,
    VM_STOCK_OUT_WITH_DETAILS,
    Failure,
    Refusal,
)

pytestmark = pytest.mark.process  # their import takes seconds

ZONE = "us-east1-d"
PARENT = f"projects/p/locations/{ZONE}"
PLACE = {"project": "p", "zone": ZONE}


@pytest.fixture
def server() -> Iterator[GoogleServer]:
    with GoogleServer() as server:
        yield server


@pytest.fixture
def tpu(server: GoogleServer) -> tpu_v2.TpuClient:
    options = ClientOptions(api_endpoint=server.address)
    return tpu_v2.TpuClient(transport="rest", client_options=options, credentials=AnonymousCredentials())


@pytest.fixture
def compute(server: GoogleServer) -> compute_v1.InstancesClient:
    options = ClientOptions(api_endpoint=server.address)
    return compute_v1.InstancesClient(client_options=options, credentials=AnonymousCredentials())


@pytest.fixture
def operations(server: GoogleServer) -> compute_v1.ZoneOperationsClient:
    """The client for operations: the one that `insert` would make for itself asks at Google's address."""
    options = ClientOptions(api_endpoint=server.address)
    return compute_v1.ZoneOperationsClient(client_options=options, credentials=AnonymousCredentials())


def node() -> tpu_v2.Node:
    return tpu_v2.Node(
        accelerator_type="v5litepod-16",
        runtime_version="v2-alpha-tpuv5-lite",
        labels={"iris": "c-1"},
        metadata={"startup-script": "#!/bin/sh"},
        scheduling_config=tpu_v2.SchedulingConfig(spot=True),
        network_config=tpu_v2.NetworkConfig(network="default", enable_external_ips=True),
    )


def instance(name: str) -> compute_v1.Instance:
    disk = compute_v1.AttachedDiskInitializeParams(source_image="projects/debian-cloud/global/images/family/debian-12")
    return compute_v1.Instance(
        name=name,
        machine_type=f"zones/{ZONE}/machineTypes/n2-standard-8",
        disks=[compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=disk)],
        network_interfaces=[compute_v1.NetworkInterface(network="global/networks/default")],
        labels={"iris": "c-1"},
        metadata=compute_v1.Metadata(items=[compute_v1.Items(key="enable-guest-attributes", value="TRUE")]),
        scheduling=compute_v1.Scheduling(provisioning_model="SPOT", instance_termination_action="STOP"),
    )


def test_nodes(server: GoogleServer, tpu: tpu_v2.TpuClient) -> None:
    made = tpu.create_node(parent=PARENT, node=node(), node_id="n").result(timeout=30)
    assert (made.state, len(made.network_endpoints)) == (tpu_v2.Node.State.READY, 4)
    server.machines("n")[2].guest["iris", "phase"] = "joined"
    path = tpu_v2.GetGuestAttributesRequest(name=made.name, query_path="iris/", worker_ids=["2"])
    (read,) = tpu.get_guest_attributes(request=path).guest_attributes
    assert [(each.key, each.value) for each in read.query_value.items] == [("phase", "joined")]
    changed = tpu_v2.Node(name=made.name, labels={"iris": "c-2"})
    assert tpu.update_node(node=changed, update_mask={"paths": ["labels"]}).result(timeout=30).labels["iris"] == "c-2"
    server.preempt("n")
    (listed,) = tpu.list_nodes(parent="projects/p/locations/-")
    assert (listed.name, listed.state) == (made.name, tpu_v2.Node.State.PREEMPTED)
    tpu.delete_node(name=made.name).result(timeout=30)
    assert list(tpu.list_nodes(parent=PARENT)) == []
    with pytest.raises(exceptions.NotFound, match="n' was not found"):
        tpu.get_node(name=made.name)


def test_a_machine_has_the_default_credentials(server: GoogleServer, tpu: tpu_v2.TpuClient, tmp_path: Path) -> None:
    tpu.create_node(parent=PARENT, node=node(), node_id="n").result(timeout=30)
    metadata = server.machines("n")[0].metadata
    script = """import google.auth, google.auth.transport.requests as requests
found, project = google.auth.default()
found.refresh(requests.Request())
print(found.token, project, found.service_account_email)"""
    environment = {"HOME": str(tmp_path), "GCE_METADATA_HOST": metadata.address, "GCE_METADATA_IP": metadata.address}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "ya29.of-a-machine p vm@p.iam.gserviceaccount.com\n"
    assert metadata.refused == []


def test_pages_of_nodes(server: GoogleServer, tpu: tpu_v2.TpuClient) -> None:
    server.cloud.page = 2
    for name in "abcde":
        tpu.create_node(parent=PARENT, node=node(), node_id=name)
    assert [each.name[-1] for each in tpu.list_nodes(parent=PARENT)] == list("abcde")
    server.zone(ZONE).unreachable = True
    assert next(iter(tpu.list_nodes(parent="projects/p/locations/-").pages)).unreachable == [ZONE]
    with pytest.raises(exceptions.ServiceUnavailable):
        next(iter(tpu.list_nodes(parent=PARENT, retry=None)))


def test_queued_resources(server: GoogleServer, tpu: tpu_v2.TpuClient) -> None:
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id="n", node=node())
    wanted = tpu_v2.QueuedResource(tpu={"node_spec": [spec]}, reservation_name="projects/p/locations/z/reservations/r")
    server.zone(ZONE).stock_out = True
    made = tpu.create_queued_resource(parent=PARENT, queued_resource=wanted, queued_resource_id="q").result(timeout=30)
    states = tpu_v2.QueuedResourceState.State

    def state() -> "tpu_v2.QueuedResourceState.State":
        (listed,) = tpu.list_queued_resources(parent=PARENT)
        return listed.state.state

    assert state() == states.WAITING_FOR_RESOURCES
    server.zone(ZONE).stock_out = False
    assert state() == states.ACTIVE
    with pytest.raises(exceptions.FailedPrecondition, match=r"not supported when state is ACTIVE"):
        tpu.delete_queued_resource(name=made.name).result(timeout=30)
    server.preempt("n")
    assert state() == states.SUSPENDED
    tpu.delete_queued_resource(request={"name": made.name, "force": True}).result(timeout=30)
    server.zone(ZONE).no_reservation = True
    tpu.create_queued_resource(parent=PARENT, queued_resource=wanted, queued_resource_id="q").result(timeout=30)
    (failed,) = tpu.list_queued_resources(parent=PARENT)
    assert "Insufficient reserved capacity" in failed.state.failed_data.error.message


def test_instances(
    server: GoogleServer, compute: compute_v1.InstancesClient, operations: compute_v1.ZoneOperationsClient
) -> None:
    begun = compute.insert_unary(**PLACE, instance_resource=instance("vm"))
    done = compute_v1.Operation.Status.DONE
    assert (begun.status != done, operations.wait(**PLACE, operation=begun.name).status) == (True, done)
    got = compute.get(**PLACE, instance="vm")
    labels = compute_v1.InstancesSetLabelsRequest(labels={"iris": "c-2"}, label_fingerprint=got.label_fingerprint)
    compute.set_labels_unary(**PLACE, instance="vm", instances_set_labels_request_resource=labels)
    found = {zone: scope.instances for zone, scope in compute.aggregated_list(project="p") if scope.instances}
    assert [each.labels["iris"] for each in found[f"zones/{ZONE}"]] == ["c-2"]
    (machine,) = server.machines("vm")
    machine.serial, machine.guest["iris", "phase"] = "booted", "joined"
    assert compute.get_serial_port_output(**PLACE, instance="vm").contents == "booted"
    path = compute_v1.GetGuestAttributesInstanceRequest(**PLACE, instance="vm", query_path="iris/")
    assert [each.value for each in compute.get_guest_attributes(request=path).query_value.items] == ["joined"]
    server.preempt("vm")
    assert [each.status for each in compute.list(**PLACE)] == ["TERMINATED"]
    compute.delete_unary(**PLACE, instance="vm")
    assert list(compute.list(request=compute_v1.ListInstancesRequest(**PLACE, filter="labels.iris=c-2"))) == []


@pytest.mark.parametrize(
    ("what", "error"),
    [
        (STOCK_OUT, exceptions.ResourceExhausted), (NO_RESERVATION_AS_STOCK_OUT, exceptions.ResourceExhausted),
        (QUOTA, exceptions.TooManyRequests), (RATE, exceptions.TooManyRequests),
        (FORBIDDEN, exceptions.Forbidden), (NOT_ENABLED, exceptions.Forbidden),
    ],
)  # fmt: skip
def test_what_fails_at_the_tpu_api(
    server: GoogleServer, tpu: tpu_v2.TpuClient, what: Refusal | Failure, error: type[Exception]
) -> None:
    server.fail_next("POST .../nodes", what)
    with pytest.raises(error) as raised:
        tpu.create_node(parent=PARENT, node=node(), node_id="n").result(timeout=30)
    assert what.filled(project="p", zone=ZONE, name="n").text in str(raised.value)
    assert list(tpu.list_nodes(parent=PARENT)) == []


@pytest.mark.parametrize("what", [VM_QUOTA, VM_RATE, VM_FORBIDDEN])
def test_what_compute_engine_refuses(server: GoogleServer, compute: compute_v1.InstancesClient, what: Refusal) -> None:
    server.fail_next("POST .../instances", what)
    with pytest.raises(exceptions.Forbidden) as raised:
        compute.insert_unary(**PLACE, instance_resource=instance("vm"))
    assert what.filled(project="p", zone=ZONE, name="vm", region="us-east1").text in str(raised.value)


@pytest.mark.parametrize("what", [VM_STOCK_OUT, VM_STOCK_OUT_WITH_DETAILS, VM_QUOTA_EXCEEDED])
def test_what_fails_at_compute_engine(
    server: GoogleServer,
    compute: compute_v1.InstancesClient,
    operations: compute_v1.ZoneOperationsClient,
    what: Failure,
) -> None:
    server.fail_next("POST .../instances", what)
    begun = compute.insert_unary(**PLACE, instance_resource=instance("vm"))
    ended = operations.wait(**PLACE, operation=begun.name)
    assert (ended.error.errors[0].code, ended.http_error_status_code) == (what.code, what.status)
    assert list(compute.list(**PLACE)) == []
