"""Nodes and operations of the TPU API, v2."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rigging.errors import InvalidRequest
from rigging.topology import TpuTopologyInfo, get_tpu_topology
from support.google.cloud import Call, Cloud, Json, Zone, check_names, page
from support.google.words import (
    BAD_REQUEST,
    CANCELLED,
    EXISTS,
    NO_GUEST_ATTRIBUTES,
    NO_LOCATION,
    NOT_FOUND,
    NOT_IN_ZONE,
    PREEMPTED_WHILE_CREATED,
    QUOTA,
    STOCK_OUT,
    UNAVAILABLE,
    Failure,
    Refusal,
    fill,
)

V2: Final = "type.googleapis.com/google.cloud.tpu.v2"
_GENERATIONS: Final = {"v2": "V2s", "v3": "V3s", "v4": "V4s", "v5p": "V5p", "v5litepod": "V5sLitepod", "v6e": "V6E"}


def begin(
    cloud: Cloud,
    call: Call,
    verb: str,
    target: str,
    seconds: float,
    act: Callable[[], Json | Failure],
    held: Callable[[], bool] = lambda: False,
) -> Json:
    """Return a new operation, which takes `seconds` and ends in what `act` returns: a response or a failure."""
    parent = f"projects/{call.project}/locations/{target.split('/')[3]}"
    name = f"{parent}/operations/operation-{1700000000000 + cloud.number()}-5eeb636eb799d-6070f791"
    metadata = {"@type": f"{V2}.OperationMetadata", "createTime": cloud.timestamp(), "target": target}
    operation: Json = {"name": name, "metadata": {**metadata, "verb": verb, "apiVersion": "v2"}, "done": False}
    cloud.operations[name] = operation

    def end() -> None:
        outcome = act()
        operation["metadata"]["endTime"] = cloud.timestamp()
        operation["done"] = True
        if isinstance(outcome, Failure):
            operation["error"] = {"code": outcome.code, "message": outcome.text}
        else:
            operation["response"] = outcome

    cloud.later(seconds, end, held)
    return operation


def get_operation(cloud: Cloud, call: Call) -> Json:
    """Return an operation."""
    return found(call, cloud.operations)


def found(call: Call, records: Mapping[str, Json]) -> Json:
    """Return the record that a request names."""
    name = call.path.removeprefix("/v2/").partition(":")[0]
    if name not in records:
        raise call.refuse(NOT_FOUND, name=name)
    return records[name]


def list_records(cloud: Cloud, call: Call, records: Mapping[str, Json], field: str) -> Json:
    """Return a page of the records of a zone, or of all zones with `-`."""
    lost = {zone.name for zone in cloud.zones.values() if zone.unreachable}
    if call.zone in lost:
        raise call.refuse(UNAVAILABLE)

    def wanted(name: str) -> bool:
        _, project, _, zone, *_ = name.split("/")
        return project == call.project and (zone == call.zone or (call.zone == "-" and zone not in lost))

    names, more = page(call, records, wanted, cloud.page)
    unreachable = {"unreachable": sorted(lost)} if lost and call.zone == "-" else {}
    listed = {field: [records[name] for name in names]} if names else {}
    return {**listed, **more, **unreachable}


def list_nodes(cloud: Cloud, call: Call) -> Json:
    """Return a page of nodes."""
    return list_records(cloud, call, cloud.nodes, "nodes")


def get_node(cloud: Cloud, call: Call) -> Json:
    """Return a node."""
    return found(call, cloud.nodes)


def create_node(cloud: Cloud, call: Call) -> Json:
    """Begin to create a node."""
    name = f"projects/{call.project}/locations/{call.zone}/nodes/{call.query.get('nodeId', '')}"
    check_node(cloud, call, call.zone, call.query.get("nodeId", ""), call.body)
    if name in cloud.nodes:
        raise call.refuse(EXISTS, name=name)
    zone = cloud.zone(call.zone)
    charge(cloud, call, zone, call.body)
    add_node(cloud, name, call.body)
    failure = call.failure or (STOCK_OUT.filled(**call.words) if zone.stock_out else None)
    if failure is not None:
        return begin(cloud, call, "create", name, cloud.operation_s, lambda: _give_up(cloud, name, failure))
    return begin(cloud, call, "create", name, cloud.boot_s, lambda: ready(cloud, name), lambda: zone.slow_boots)


def _give_up(cloud: Cloud, name: str, failure: Failure) -> Failure:
    cloud.forget(cloud.nodes, name)
    return failure


def add_node(cloud: Cloud, name: str, body: Json, queued: str = "") -> None:
    """Add a node in creation."""
    record = {**body, "name": name, "id": str(cloud.number()), "state": "CREATING", "createTime": cloud.timestamp()}
    record |= {"apiVersion": "V2", "health": "HEALTHY"}
    if queued:
        record["queuedResource"] = queued
    cloud.nodes[name] = record
    cloud.add_machines(name, name.split("/")[3], _topology(body).vm_count, body.get("metadata", {}))


def ready(cloud: Cloud, name: str) -> Json | Failure:
    """Return a node whose creation ends; its machines start."""
    node = cloud.nodes.get(name)
    if node is None or node["state"] != "CREATING":
        return PREEMPTED_WHILE_CREATED if node and node["state"] == "PREEMPTED" else CANCELLED
    machines = cloud.machines[name]
    for machine in machines:
        machine.metadata.set("instance/attributes/accelerator-type", node["acceleratorType"])
        ends = ",".join(each.address for each in machines)
        machine.metadata.set("instance/attributes/worker-network-endpoints", ends)
    node["state"] = "READY"
    node["networkEndpoints"] = [
        {"ipAddress": each.address, "port": 8470, "accessConfig": {"externalIp": each.address}} for each in machines
    ]
    cloud.boot(name)
    return {"@type": f"{V2}.Node", **node}


def delete_node(cloud: Cloud, call: Call) -> Json:
    """Begin to delete a node."""
    node = found(call, cloud.nodes)
    name, zone = node["name"], cloud.zone(call.zone)
    node["state"] = "DELETING"
    cloud.halt(name)

    def end() -> Json:
        if name in cloud.nodes:
            suspend(cloud, name, "USER")
            cloud.forget(cloud.nodes, name)
        return {"@type": "type.googleapis.com/google.protobuf.Empty"}

    return begin(cloud, call, "delete", name, cloud.delete_s, end, lambda: zone.stuck_deletes)


def suspend(cloud: Cloud, node: str, by: str) -> None:
    """Let the queued resource of a node that is lost or deleted go to SUSPENDED; the node goes."""
    record = cloud.queued.get(cloud.nodes[node].get("queuedResource", ""))
    if record is not None:
        set_state(record, "SUSPENDED")
        record["state"]["stateInitiator"] = by
        cloud.forget(cloud.nodes, node)


def set_state(record: Json, state: str) -> None:
    """Change the state of a queued resource. Most states have an empty message."""
    data = {"ACCEPTED": "acceptedData", "PROVISIONING": "provisioningData", "ACTIVE": "activeData"}
    data |= {"SUSPENDING": "suspendingData", "SUSPENDED": "suspendedData", "DELETING": "deletingData"}
    record["state"] = {"state": state, **({data[state]: {}} if state in data else {})}


def patch_node(cloud: Cloud, call: Call) -> Json:
    """Change the labels, tags or description of a node."""
    node = found(call, cloud.nodes)
    fields = call.query.get("updateMask", "").split(",")
    if not set(fields) <= {"labels", "tags", "description", "metadata"}:
        raise call.refuse(BAD_REQUEST, name=f"update_mask {fields} is not supported")
    check_names(call, "n", call.body.get("labels", {}), {}, BAD_REQUEST)
    node |= {field: call.body[field] for field in fields}
    done = {"@type": f"{V2}.Node", **node}
    return begin(cloud, call, "update", node["name"], cloud.operation_s, lambda: done)


def get_guest_attributes(cloud: Cloud, call: Call) -> Json:
    """Return the guest attributes of a node's machines, one entry each."""
    node = found(call, cloud.nodes)
    path = call.body.get("queryPath", "")
    numbers = call.body.get("workerIds") or [str(each.number) for each in cloud.machines[node["name"]]]
    answers = []
    for machine in cloud.machines[node["name"]]:
        if str(machine.number) in numbers:
            items = guest_items(machine.guest, path)
            answers.append({"queryPath": path, **({"queryValue": {"items": items}} if items else {})})
    if not any("queryValue" in answer for answer in answers):
        raise call.refuse(NO_GUEST_ATTRIBUTES, name=path)
    return {"guestAttributes": answers}


def guest_items(guest: Mapping[tuple[str, str], str], path: str) -> list[Json]:
    """Return the guest attributes under a path: `NAMESPACE/`, `NAMESPACE/KEY`, or all."""
    space, _, key = path.partition("/")
    return [
        {"namespace": found, "key": name, "value": value}
        for (found, name), value in sorted(guest.items())
        if space in ("", found) and key in ("", name)
    ]


def check_node(cloud: Cloud, call: Call, zone: str, short: str, body: Json) -> None:
    """Refuse a node that Google would not make."""
    bad = BAD_REQUEST
    check_names(call, short, body.get("labels", {}), body.get("metadata", {}), bad)
    if zone == "-":
        raise call.refuse(NO_LOCATION)
    if not body.get("runtimeVersion"):
        raise call.refuse(bad, name="runtimeVersion is required")
    kind, offers = str(body.get("acceleratorType")), cloud.zone(zone).offers
    try:
        _topology(body)
    except InvalidRequest:
        raise call.refuse(NOT_IN_ZONE, zone=zone, type=kind) from None
    if offers is not None and kind not in offers:
        raise call.refuse(NOT_IN_ZONE, zone=zone, type=kind)
    scheduling = body.get("schedulingConfig", {})
    if sum(bool(scheduling.get(key)) for key in ("spot", "preemptible", "reserved")) > 1:
        raise call.refuse(bad, name="schedulingConfig: spot, preemptible and reserved exclude each other")


def charge(cloud: Cloud, call: Call, zone: Zone, body: Json) -> None:
    """Refuse a node for which the zone's quota does not suffice; what is listed counts, queued resources, too."""
    metric = quota_name(body)
    limit = zone.quota.get(metric)
    if limit is None:
        return
    prefix = f"projects/{call.project}/locations/{zone.name}/nodes/"
    held = [node for name, node in cloud.nodes.items() if name.startswith(prefix)]
    specs = [spec for queued in cloud.queued.values() for spec in queued["tpu"]["nodeSpec"]]
    names = {f"{spec['parent']}/nodes/{spec['nodeId']}": spec["node"] for spec in specs}
    held += [node for name, node in names.items() if name.startswith(prefix) and name not in cloud.nodes]
    used = sum(_topology(node).chip_count for node in held if quota_name(node) == metric)
    if used + _topology(body).chip_count > limit:
        raise call.refuse(quota_refusal(metric, limit), zone=zone.name)


def quota_name(body: Mapping[str, Any]) -> str:
    """Return the name of the quota that a node counts in."""
    scheduling = body.get("schedulingConfig", {})
    claim = "Preemptible" if scheduling.get("spot") or scheduling.get("preemptible") else ""
    kind = str(body["acceleratorType"]).rpartition("-")[0]
    return f"TPU{_GENERATIONS[kind]}{claim}PerProjectPerZoneForTPUAPI"


def quota_refusal(metric: str, limit: int) -> Refusal:
    """Return the answer when a quota is used up."""
    details = QUOTA.details[0]
    words = fill("Quota '{metric}' exhausted. Limit {limit} in zone {zone}", metric=metric, limit=limit)
    violation = {**details["violations"][0], "description": words}
    text = fill("Quota limit '{metric}' has been exceeded. Limit: {limit} in zone {zone}.", metric=metric, limit=limit)
    return Refusal(QUOTA.status, text, QUOTA.google, details=({**details, "violations": [violation]},))


def _topology(body: Mapping[str, Any]) -> TpuTopologyInfo:
    return get_tpu_topology(str(body.get("acceleratorType", "")))
