"""Instances and operations of Compute Engine, v1."""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from support.google.cloud import Call, Cloud, Json, check_names, page
from support.google.tpu import guest_items
from support.google.words import (
    UNAVAILABLE,
    VM_EXISTS,
    VM_INVALID,
    VM_NOT_FOUND,
    VM_QUOTA,
    VM_STOCK_OUT_WITH_DETAILS,
    Failure,
    Refusal,
    fill,
)

_URL: Final = "https://www.googleapis.com/compute/v1/"
_FILTER: Final = re.compile(
    r"(?P<no>\bNOT\s+)?labels\.(?P<label>[-\w]+)\s*(?P<has>:\s*\*|=\s*\"?(?P<value>[-\w]*)\"?)|status\s*=\s*\"?(?P<status>\w+)\"?"
)


def begin(
    cloud: Cloud,
    call: Call,
    kind: str,
    target: str,
    seconds: float,
    act: Callable[[], Failure | None],
    held: Callable[[], bool] = lambda: False,
) -> Json:
    """Return a new operation, which takes `seconds` and ends in the failure that `act` returns, if any."""
    number = cloud.number()
    short = f"operation-{1700000000000 + number}-62475e98b4d71-14d19ec0-defb4629"
    path = f"projects/{call.project}/zones/{call.zone}/operations/{short}"
    operation: Json = {
        "kind": "compute#operation",
        "id": str(number),
        "name": short,
        "zone": f"{_URL}projects/{call.project}/zones/{call.zone}",
        "operationType": kind,
        "targetLink": _URL + target,
        "targetId": cloud.instances.get(target, {}).get("id", "0"),
        "status": "RUNNING",
        "progress": 0,
        "insertTime": cloud.timestamp(),
        "startTime": cloud.timestamp(),
        "selfLink": _URL + path,
    }
    cloud.operations[path] = operation

    def end() -> None:
        failure = act()
        operation.update(status="DONE", progress=100, endTime=cloud.timestamp())
        if failure is not None:
            error = {"code": failure.code, "message": failure.text}
            operation.update(httpErrorStatusCode=failure.status, httpErrorMessage=failure.message)
            operation["error"] = {"errors": [error]}

    cloud.later(seconds, end, held)
    return operation


def get_operation(cloud: Cloud, call: Call) -> Json:
    """Return an operation."""
    return _found(call, cloud.operations)


def insert(cloud: Cloud, call: Call) -> Json:
    """Begin to create an instance."""
    body, zone = call.body, cloud.zone(call.zone)
    name = f"projects/{call.project}/zones/{call.zone}/instances/{body.get('name', '')}"
    metadata = {item["key"]: item.get("value", "") for item in body.get("metadata", {}).get("items", ())}
    check_names(call, body.get("name", ""), body.get("labels", {}), metadata, VM_INVALID)
    for key in ("machineType", "disks", "networkInterfaces"):
        if not body.get(key):
            raise call.refuse(VM_INVALID, name=f"resource.{key}", type="")
    if not re.fullmatch(rf"(.*/)?zones/{call.zone}/machineTypes/[-\w]+", body["machineType"]):
        raise call.refuse(VM_INVALID, name="resource.machineType", type=body["machineType"])
    if name in cloud.instances:
        raise call.refuse(VM_EXISTS, name=name)
    _charge(cloud, call)
    (machine,) = cloud.add_machines(name, call.zone, 1, metadata)
    ends = [{"name": "External NAT", "type": "ONE_TO_ONE_NAT", "natIP": machine.address}]
    network = {**body["networkInterfaces"][0], "name": "nic0", "networkIP": machine.address, "accessConfigs": ends}
    cloud.instances[name] = {
        **body,
        "kind": "compute#instance",
        "id": str(cloud.number()),
        "status": "PROVISIONING",
        "creationTimestamp": cloud.timestamp(),
        "zone": f"{_URL}projects/{call.project}/zones/{call.zone}",
        "selfLink": _URL + name,
        "labelFingerprint": _fingerprint(body.get("labels", {})),
        "networkInterfaces": [network],
    }
    failure = call.failure or (VM_STOCK_OUT_WITH_DETAILS.filled(**call.words) if zone.stock_out else None)

    def end() -> Failure | None:
        if failure is not None:
            cloud.forget(cloud.instances, name)
        elif name in cloud.instances:
            cloud.instances[name]["status"] = "RUNNING"
            cloud.boot(name)
        return failure

    seconds = cloud.operation_s if failure else cloud.boot_s
    return begin(cloud, call, "insert", name, seconds, end, lambda: zone.slow_boots and failure is None)


def list_instances(cloud: Cloud, call: Call) -> Json:
    """Return a page of the instances of a zone."""
    if cloud.zone(call.zone).unreachable:
        raise call.refuse(UNAVAILABLE)
    records, more = _page(cloud, call, lambda zone: zone == call.zone)
    found = {"items": list(records.values())} if records else {}
    return {"kind": "compute#instanceList", "id": call.path, **found, **more}


def aggregated_list(cloud: Cloud, call: Call) -> Json:
    """Return a page of the instances of all zones, by zone. Those without any have a warning."""
    lost = {zone.name for zone in cloud.zones.values() if zone.unreachable}
    records, more = _page(cloud, call, lambda zone: zone not in lost)
    items: dict[str, Json] = {}
    for zone in sorted(cloud.zones):
        here = [record for name, record in records.items() if name.split("/")[3] == zone]
        none = {"code": "NO_RESULTS_ON_PAGE", "message": f"There are no results for scope 'zones/{zone}' on this page."}
        warning = {"warning": {**none, "data": [{"key": "scope", "value": f"zones/{zone}"}]}}
        items[f"zones/{zone}"] = {"instances": here} if here else warning
    unreachable = {"unreachables": [f"zones/{zone}" for zone in sorted(lost)]} if lost else {}
    return {"kind": "compute#instanceAggregatedList", "id": call.path, "items": items, **more, **unreachable}


def get(cloud: Cloud, call: Call) -> Json:
    """Return an instance."""
    return _found(call, cloud.instances)


def delete(cloud: Cloud, call: Call) -> Json:
    """Begin to delete an instance."""
    _found(call, cloud.instances)["status"] = "STOPPING"
    name, zone = _name(call), cloud.zone(call.zone)
    cloud.halt(name)
    return begin(
        cloud,
        call,
        "delete",
        name,
        cloud.delete_s,
        lambda: cloud.forget(cloud.instances, name),
        lambda: zone.stuck_deletes,
    )


def reset(cloud: Cloud, call: Call) -> Json:
    """Restart an instance, like its reset button."""
    name = _name(call)
    if _found(call, cloud.instances)["status"] != "RUNNING":
        raise call.refuse(VM_INVALID, name=f"{name} is not running", type="reset")
    cloud.halt(name)
    return begin(cloud, call, "reset", name, cloud.operation_s, lambda: cloud.boot(name))


def start(cloud: Cloud, call: Call) -> Json:
    """Begin to start a stopped instance."""
    name, found = _name(call), _found(call, cloud.instances)

    def end() -> None:
        found["status"] = "RUNNING"
        cloud.boot(name)

    return begin(cloud, call, "start", name, cloud.boot_s, end)


def set_labels(cloud: Cloud, call: Call) -> Json:
    """Replace the labels of an instance, if the caller has seen the present ones."""
    found, labels = _found(call, cloud.instances), call.body.get("labels", {})
    if call.body.get("labelFingerprint", "") != found["labelFingerprint"]:
        stale = "Labels fingerprint either invalid or resource labels have changed"
        raise call.refuse(Refusal(412, stale, reason="conditionNotMet"))
    check_names(call, "n", labels, {}, VM_INVALID)
    found.update(labels=labels, labelFingerprint=_fingerprint(labels))
    return begin(cloud, call, "setLabels", _name(call), cloud.operation_s, lambda: None)


def set_metadata(cloud: Cloud, call: Call) -> Json:
    """Replace the metadata of an instance."""
    _found(call, cloud.instances)["metadata"] = call.body
    (machine,) = cloud.machines[_name(call)]
    machine.attributes.clear()
    machine.attributes.update({item["key"]: item.get("value", "") for item in call.body.get("items", ())})
    return begin(cloud, call, "setMetadata", _name(call), cloud.operation_s, lambda: None)


def serial_port(cloud: Cloud, call: Call) -> Json:
    """Return the output of an instance's serial port, from `start`."""
    _found(call, cloud.instances)
    (machine,) = cloud.machines[_name(call)]
    start = int(call.query.get("start", 0))
    contents = machine.output[start:].decode(errors="replace")
    end = len(machine.output)
    return {"kind": "compute#serialPortOutput", "contents": contents, "start": str(start), "next": str(end)}


def get_guest_attributes(cloud: Cloud, call: Call) -> Json:
    """Return the guest attributes of an instance; a path without any is not found."""
    _found(call, cloud.instances)
    (machine,) = cloud.machines[_name(call)]
    path = call.query.get("queryPath") or call.query.get("variableKey", "")
    items = guest_items(machine.guest, path)
    if machine.attributes.get("enable-guest-attributes", "").upper() != "TRUE" or not items:
        raise call.refuse(VM_NOT_FOUND, name=f"{_name(call)}/guestAttributes/{path}")
    return {"kind": "compute#guestAttributes", "queryPath": path, "queryValue": {"items": items}}


def _page(cloud: Cloud, call: Call, in_zone: Callable[[str], bool]) -> tuple[dict[str, Json], Json]:
    expression = call.query.get("filter", "")
    rest = re.sub(r"[\s()]|\bAND\b|\bOR\b", "", _FILTER.sub("", expression))
    if rest:
        raise call.refuse(VM_INVALID, name="filter", type=expression)
    terms = [found.groupdict() for found in _FILTER.finditer(expression)]
    states = [term["status"] for term in terms if term["status"]]

    records = cloud.instances | _hosts_of_nodes(cloud)

    def wanted(name: str) -> bool:
        _, project, _, zone, *_ = name.split("/")
        record = records[name]
        if project != call.project or not in_zone(zone) or (states and record["status"] not in states):
            return False
        return all(_has(record.get("labels", {}), term) for term in terms if term["label"])

    names, more = page(call, records, wanted, cloud.page)
    return {name: records[name] for name in names}, more


def _hosts_of_nodes(cloud: Cloud) -> dict[str, Json]:
    """Return the virtual machines of TPU nodes, which Compute Engine lists, too, with the labels of the node."""
    found = {}
    for owner, node in cloud.nodes.items():
        for machine in cloud.machines.get(owner, ()):
            if machine.up:
                name = machine.host_name
                labels = {**node.get("labels", {}), "tpu_cores": "4"}
                record = {"name": name, "id": node["id"], "status": "RUNNING", "labels": labels}
                found[f"projects/{owner.split('/')[1]}/zones/{machine.zone}/instances/{name}"] = record
    return found


def _has(labels: Mapping[str, str], term: Mapping[str, Any]) -> bool:
    label = labels.get(term["label"])
    return bool(term["no"]) != (label is not None if term["value"] is None else label == term["value"])


def _charge(cloud: Cloud, call: Call) -> None:
    limit = cloud.zone(call.zone).quota.get("CPUS")
    if limit is None:
        return
    prefix = f"projects/{call.project}/zones/{call.zone}/"
    used = sum(_cpus(found) for name, found in cloud.instances.items() if name.startswith(prefix))
    if used + _cpus(call.body) > limit:
        words = fill("Quota 'CPUS' exceeded.  Limit: {limit}.0 in region {region}.", limit=limit)
        raise call.refuse(Refusal(VM_QUOTA.status, words, reason=VM_QUOTA.reason))


def _cpus(body: Mapping[str, Any]) -> int:
    return int(re.findall(r"\d+", "1-" + str(body["machineType"]).rpartition("/")[2])[-1])


def _name(call: Call) -> str:
    kind = "instances" if "instance" in call.names else "operations"
    short = call.names["instance" if "instance" in call.names else "operation"]
    place = f"zones/{call.zone}" if call.zone else "global"
    return f"projects/{call.project}/{place}/{kind}/{short}"


def _found(call: Call, records: Mapping[str, Json]) -> Json:
    name = _name(call)
    if name not in records:
        raise call.refuse(VM_NOT_FOUND, name=name)
    return records[name]


def _fingerprint(labels: Mapping[str, str]) -> str:
    return base64.b64encode(str(hash(tuple(sorted(labels.items()))) & 0xFFFFFFFF).encode()).decode()
