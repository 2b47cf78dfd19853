"""Queued resources of the TPU API, v2."""

from typing import Final

from support.google.cloud import Call, Cloud, Json, Zone, check_names
from support.google.tpu import V2, add_node, begin, charge, check_node, found, list_records, ready, set_state
from support.google.words import BAD_REQUEST, EXISTS, NO_RESERVATION, Failure

_DELETABLE: Final = ("ACCEPTED", "WAITING_FOR_RESOURCES", "SUSPENDED", "FAILED")
_EMPTY: Final = {"@type": "type.googleapis.com/google.protobuf.Empty"}


def create(cloud: Cloud, call: Call) -> Json:
    """Begin to create a queued resource: a node when there is room for it."""
    short = call.query.get("queuedResourceId", "")
    name = f"projects/{call.project}/locations/{call.zone}/queuedResources/{short}"
    check_names(call, short, {}, {}, BAD_REQUEST)
    specs = call.body.get("tpu", {}).get("nodeSpec", [])
    if len(specs) != 1:
        raise call.refuse(BAD_REQUEST, name=f"tpu.node_spec: {len(specs)}; the test server takes one")
    (spec,) = specs
    if spec.get("parent") != name.partition("/queuedResources/")[0]:
        raise call.refuse(BAD_REQUEST, name=f"tpu.node_spec.parent {spec.get('parent')!r}")
    check_node(cloud, call, call.zone, spec.get("nodeId", ""), spec.get("node", {}))
    node = f"{spec['parent']}/nodes/{spec['nodeId']}"
    if name in cloud.queued or node in cloud.nodes:
        raise call.refuse(EXISTS, name=name if name in cloud.queued else node)
    zone = cloud.zone(call.zone)
    charge(cloud, call, zone, spec["node"])
    record = {**call.body, "name": name, "createTime": cloud.timestamp()}
    cloud.queued[name] = record
    set_state(record, "ACCEPTED")

    def accept() -> Json | Failure:
        if call.failure is not None:
            cloud.queued.pop(name, None)
            return call.failure
        cloud.later(0, lambda: _wait(cloud, record, node, zone))
        return {"@type": f"{V2}.QueuedResource", **record}

    return begin(cloud, call, "create", name, cloud.operation_s, accept)


def _wait(cloud: Cloud, record: Json, node: str, zone: Zone) -> None:
    if record["state"]["state"] == "ACCEPTED":
        set_state(record, "WAITING_FOR_RESOURCES")
        cloud.later(0, lambda: _provision(cloud, record, node, zone), lambda: zone.stock_out)


def _provision(cloud: Cloud, record: Json, node: str, zone: Zone) -> None:
    if record["state"]["state"] != "WAITING_FOR_RESOURCES":
        return
    if zone.no_reservation:
        set_state(record, "FAILED")
        record["state"]["failedData"] = {"error": {"code": NO_RESERVATION.code, "message": NO_RESERVATION.text}}
        return
    set_state(record, "PROVISIONING")
    add_node(cloud, node, record["tpu"]["nodeSpec"][0]["node"], record["name"])

    def activate() -> None:
        if record["state"]["state"] == "PROVISIONING" and not isinstance(ready(cloud, node), Failure):
            set_state(record, "ACTIVE")

    cloud.later(cloud.boot_s, activate, lambda: zone.slow_boots)


def get(cloud: Cloud, call: Call) -> Json:
    """Return a queued resource."""
    return found(call, cloud.queued)


def list_queued(cloud: Cloud, call: Call) -> Json:
    """Return a page of queued resources."""
    return list_records(cloud, call, cloud.queued, "queuedResources")


def delete(cloud: Cloud, call: Call) -> Json:
    """Begin to delete a queued resource; an active one goes with its node, and only with `force`."""
    record = found(call, cloud.queued)
    name, state, zone = record["name"], record["state"]["state"], cloud.zone(call.zone)
    if state in _DELETABLE or (state == "ACTIVE" and call.query.get("force") == "true"):
        nodes = [full for full, node in cloud.nodes.items() if node.get("queuedResource") == name]
        set_state(record, "DELETING")
        for node in nodes:
            cloud.nodes[node]["state"] = "DELETING"
            cloud.halt(node)

        def end() -> Json:
            for node in nodes:
                cloud.forget(cloud.nodes, node)
            cloud.queued.pop(name, None)
            return _EMPTY

        return begin(cloud, call, "delete", name, cloud.delete_s, end, lambda: zone.stuck_deletes)
    if state == "PROVISIONING":  # is refused, and ends what it refuses to delete
        set_state(record, "SUSPENDING")
        cloud.later(0, lambda: _fail(cloud, record))
    text = f"DeleteQueuedResource is not supported when state is {state} (must be one of [{' '.join(_DELETABLE)}])"
    refused = Failure(9, text)
    return begin(cloud, call, "delete", name, 0, lambda: refused)


def _fail(cloud: Cloud, record: Json) -> None:
    for name in [name for name, node in cloud.nodes.items() if node.get("queuedResource") == record["name"]]:
        cloud.forget(cloud.nodes, name)
    set_state(record, "FAILED")
