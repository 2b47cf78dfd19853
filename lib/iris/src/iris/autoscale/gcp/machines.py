"""The controller's virtual machine, and what operators read from hosts: serial port output, guest attributes."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from iris.autoscale.gcp.api import GoogleApi, Reply
from iris.autoscale.gcp.bodies import controller_body, metadata_items
from iris.autoscale.gcp.inventory import Inventory
from iris.autoscale.gcp.outcomes import answer_of_operation
from iris.autoscale.gcp.ownership import CONTROLLER_ROLE, ROLE_LABEL, Owner, label_value
from iris.autoscale.gcp.reading import Kind, Place, labels_of
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.rules import ControllerHost
from rigging.errors import MarinError

_POLL_S: Final = 1.0
_MOST_NAME: Final = 50


def controller_place(owner: Owner, project: str, host: ControllerHost) -> Place:
    """Return where the controller's virtual machine is, or would be."""
    stem = label_value(owner.cluster).replace("_", "-")[:_MOST_NAME].strip("-")
    return Place(Kind.INSTANCE, project, host.zone, f"{stem}-controller")


async def create_controller(
    api: GoogleApi, owner: Owner, place: Place, host: ControllerHost, script: str, *, poll_s: float = _POLL_S
) -> Answer:
    """Create the controller's virtual machine, and return when it runs or has failed; DONE if we have it already.

    Args:
        api: The client.
        owner: The cluster.
        place: From `controller_place`.
        host: Its settings.
        script: Its startup script.
        poll_s: Interval between looks at the operation.
    """
    body = controller_body(place.name, host, owner.labels(**{ROLE_LABEL: CONTROLLER_ROLE}), script)
    reply = await api.call("POST", place.parent, body)
    if reply.status == 409:
        return await Inventory(api, owner, {}).taken(place, reply)
    if reply.status != 200:
        return reply.answer
    return await _ended(api, place, reply, poll_s)


async def restart(api: GoogleApi, owner: Owner, place: Place, script: str, *, poll_s: float = _POLL_S) -> Answer:
    """Restart a virtual machine that bears the cluster's label, and return when it runs. Its disk stays.

    Args:
        api: The client.
        owner: The cluster.
        place: The machine.
        script: Its startup script from now on.
        poll_s: Interval between looks at the operation.
    """
    reply = await api.call("GET", place.path, query={"fields": "status,labels,metadata"})
    if reply.status != 200:
        return reply.answer
    labels = labels_of(place.kind, reply.body)
    if not owner.owns(labels):
        return Answer(Outcome.CONFIG, Inventory(api, owner, {}).foreign(place, labels))
    metadata = {**reply.body.get("metadata", {}), "items": metadata_items(script)}
    changed = await api.call("POST", f"{place.path}/setMetadata", metadata)
    answer = changed.answer if changed.status != 200 else await _ended(api, place, changed, poll_s)
    if answer.outcome is not Outcome.DONE:
        return answer
    verb = "start" if reply.body.get("status") in ("TERMINATED", "STOPPED") else "reset"
    reply = await api.call("POST", f"{place.path}/{verb}")
    return reply.answer if reply.status != 200 else await _ended(api, place, reply, poll_s)


async def _ended(api: GoogleApi, place: Place, begun: Reply, poll_s: float) -> Answer:
    """Return the answer of an operation when it ends."""
    operation = f"{place.parent.rpartition('/')[0]}/operations/{begun.body.get('name', '')}"
    while True:
        reply = await api.call("GET", operation)
        answer = answer_of_operation(reply.body) if reply.status == 200 else reply.answer
        if answer is not None and answer.outcome is not Outcome.RATE:
            return answer
        await asyncio.sleep(poll_s)


async def read_serial_port(api: GoogleApi, place: Place, start: int = 0) -> tuple[str, int]:
    """Return the output of an instance's serial port from a byte on, and the byte after it.

    Args:
        api: The client.
        place: An instance. TPU hosts have no serial port that their owner may read.
        start: The first byte.

    Raises:
        MarinError: Google refuses.
    """
    reply = await api.call("GET", f"{place.path}/serialPort", query={"port": "1", "start": str(start)})
    if reply.status != 200:
        raise MarinError(f"{place}: no serial port output: {reply.answer.words}")
    return str(reply.body.get("contents", "")), int(reply.body.get("next", start))


async def read_guest_attributes(api: GoogleApi, place: Place, namespace: str) -> tuple[Mapping[str, str], ...]:
    """Return the guest attributes of each host in order, by key; nothing if no host has any.

    Args:
        api: The client.
        place: A node, a queued resource whose node has its name, or an instance.
        namespace: The namespace.

    Raises:
        MarinError: Google refuses.
    """
    if place.kind is Kind.INSTANCE:
        reply = await api.call("GET", f"{place.path}/getGuestAttributes", query={"queryPath": f"{namespace}/"})
        is_none = reply.status == 404
        found = [reply.body]
    else:
        node = replace(place, kind=Kind.NODE)
        reply = await api.call("POST", f"{node.path}:getGuestAttributes", {"queryPath": f"{namespace}/"})
        is_none = reply.status == 400 and '"GuestAttributes"' in reply.answer.words
        found = list(reply.body.get("guestAttributes", ()))
    if is_none:
        return ()
    if reply.status != 200:
        raise MarinError(f"{place}: no guest attributes: {reply.answer.words}")
    return tuple(
        {str(item["key"]): str(item["value"]) for item in each.get("queryValue", {}).get("items", ())} for each in found
    )
