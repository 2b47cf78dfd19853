"""All that a cluster has at Google: lists it, and deletes what bears the cluster's label."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from iris.autoscale.gcp.api import GoogleApi, Reply
from iris.autoscale.gcp.outcomes import DONE, Json, is_disabled
from iris.autoscale.gcp.ownership import OWNER_LABEL, Owner
from iris.autoscale.gcp.reading import (
    Kind,
    Listed,
    Place,
    is_being_deleted,
    labels_of,
    read_instances,
    read_tpus,
)
from iris.autoscale.model import Answer, Outcome
from iris.domain.scale_groups import GcpTemplate, ScaleGroup

_ALL_ZONES: Final = "-"
_PAGE: Final = "500"
# Without these, each machine comes with its startup script of up to 256 KiB.
_MORE: Final = "nextPageToken,unreachable"
_FIELDS: Final[Mapping[str, str]] = {
    "nodes": "nodes(name,state,health,healthDescription,labels,acceleratorType,networkEndpoints,queuedResource),"
    + _MORE,
    "queuedResources": "queuedResources(name,state,tpu/nodeSpec/node(labels,acceleratorType))," + _MORE,
    "instances": (
        "items/*/instances(name,zone,status,statusMessage,labels,machineType,networkInterfaces),nextPageToken,unreachables"
    ),
}
_OWN_FIELDS: Final[Mapping[Kind, str]] = {
    Kind.NODE: "state,labels",
    Kind.QUEUED: "state,tpu/nodeSpec/node/labels",
    Kind.INSTANCE: "labels",
}


def project_of(group: ScaleGroup, project: str) -> str:
    """Return the project of a group; `project` if it names none."""
    return (group.template.project_id if isinstance(group.template, GcpTemplate) else "") or project


def zones_of(project: str, groups: Iterable[ScaleGroup]) -> Mapping[str, Collection[str]]:
    """Return the projects of a cluster, each with the zones of its groups.

    Args:
        project: The project of groups that name none, and of the controller.
        groups: The scale groups.
    """
    zones: dict[str, set[str]] = {project: set()}
    for group in groups:
        if isinstance(group.template, GcpTemplate):
            zones.setdefault(project_of(group, project), set()).add(group.zone)
    return zones


@dataclass(frozen=True, slots=True)
class Survey:
    """All that a cluster has at Google.

    Args:
        found: What bears its label.
        unlisted: Places that could not be listed, with the answer: by project, whether TPUs, and zone ("-": all).
    """

    found: tuple[Listed, ...]
    unlisted: Mapping[tuple[str, bool, str], Answer] = field(default_factory=dict)

    def unlisted_at(self, project: str, is_tpu: bool, zone: str) -> Answer | None:
        """Return why a place was not listed; None if it was."""
        keys = ((project, is_tpu, zone), (project, is_tpu, _ALL_ZONES))
        return next((self.unlisted[key] for key in keys if key in self.unlisted), None)


class Inventory:
    """Lists and deletes what a cluster has at Google.

    Args:
        api: The client.
        owner: The cluster.
        zones: From `zones_of`. Zones are asked one by one if Google does not list all at once.
    """

    def __init__(self, api: GoogleApi, owner: Owner, zones: Mapping[str, Collection[str]]) -> None:
        self._api, self._owner, self._zones = api, owner, zones

    async def survey(self) -> Survey:
        """Return all that the cluster has: three lists a project, however many slices and zones."""
        unlisted: dict[tuple[str, bool, str], Answer] = {}
        parts = await asyncio.gather(
            *(part for project in self._zones for part in (self._tpus(project, unlisted), self._vms(project, unlisted)))
        )
        return Survey(tuple(each for part in parts for each in part if self._owner.owns(each.labels)), unlisted)

    async def delete(self, place: Place) -> Answer:
        """Begin to delete what is at a place, if it bears the cluster's label; DONE if nothing is there.

        Args:
            place: The place; its labels are read first.
        """
        reply = await self._api.call("GET", place.path, query={"fields": _OWN_FIELDS[place.kind]})
        if reply.status == 404:
            return DONE
        if reply.status != 200:
            return reply.answer
        labels = labels_of(place.kind, reply.body)
        if not self._owner.owns(labels):
            return Answer(Outcome.CONFIG, self.foreign(place, labels))
        if is_being_deleted(place.kind, reply.body):
            return DONE
        query = {"force": "true"} if place.kind is Kind.QUEUED else {}  # its node, too
        reply = await self._api.call("DELETE", place.path, query=query)
        return DONE if reply.status == 404 else reply.answer

    async def delete_all(self, places: Iterable[Place]) -> Mapping[Place, Answer]:
        """Begin to delete what is at several places, at the same time, and return the answers."""
        wanted = tuple(places)
        return dict(zip(wanted, await asyncio.gather(*map(self.delete, wanted)), strict=True))

    async def taken(self, place: Place, refused: Reply) -> Answer:
        """Return the answer for a creation that was refused because the name is taken: DONE if we have it.

        Args:
            place: The place.
            refused: The refusal.
        """
        reply = await self._api.call("GET", place.path, query={"fields": _OWN_FIELDS[place.kind]})
        if reply.status != 200:
            return Answer(Outcome.UNKNOWN, refused.answer.words)
        labels = labels_of(place.kind, reply.body)
        return DONE if self._owner.owns(labels) else Answer(Outcome.CONFIG, self.foreign(place, labels))

    def foreign(self, place: Place, labels: Mapping[str, str]) -> str:
        """Return why something with these labels is left alone."""
        label = labels.get(OWNER_LABEL)
        has = f"has the label {OWNER_LABEL}={label}" if label else f"has no label {OWNER_LABEL}"
        return (
            f"{place} is not of this cluster: it {has}; ours is {self._owner.label}. Set platform.label_prefix to a "
            "name that no other cluster of the project uses, or delete it by hand"
        )

    async def _tpus(self, project: str, unlisted: dict[tuple[str, bool, str], Answer]) -> list[Listed]:
        nodes, queued = await asyncio.gather(
            *(self._tpu_list(project, collection, unlisted) for collection in ("nodes", "queuedResources"))
        )
        return read_tpus(project, nodes, queued)

    async def _tpu_list(
        self, project: str, collection: str, unlisted: dict[tuple[str, bool, str], Answer]
    ) -> list[Json]:
        async def ask(zone: str) -> tuple[str, list[Json], Reply]:
            path = f"v2/projects/{project}/locations/{zone}/{collection}"
            return zone, *await self._api.pages(path, {"pageSize": _PAGE, "fields": _FIELDS[collection]})

        asked = [await ask(_ALL_ZONES)]
        zones = self._zones[project]
        if zones and asked[0][2].answer.outcome in (Outcome.CONFIG, Outcome.PERMISSION):
            asked = list(await asyncio.gather(*map(ask, zones)))
        for zone, bodies, last in asked:
            if last.status != 200 and not is_disabled(last.status, last.body):
                unlisted[project, True, zone] = last.answer
            for lost in (str(name) for body in bodies for name in body.get("unreachable", ())):
                words = f"Google cannot reach {lost}"
                unlisted[project, True, lost.rpartition("/")[2]] = Answer(Outcome.UNKNOWN, words)
        return [record for _, bodies, _ in asked for body in bodies for record in body.get(collection, ())]

    async def _vms(self, project: str, unlisted: dict[tuple[str, bool, str], Answer]) -> list[Listed]:
        # Hosts of TPU nodes are instances with the node's labels, and tpu_cores. A cluster's name may have changed.
        ours = f"labels.{OWNER_LABEL}:* AND NOT labels.tpu_cores:*"
        path = f"compute/v1/projects/{project}/aggregated/instances"
        query = {"filter": ours, "maxResults": _PAGE, "fields": _FIELDS["instances"]}
        bodies, last = await self._api.pages(path, query)
        if last.status != 200 and not is_disabled(last.status, last.body):
            unlisted[project, False, _ALL_ZONES] = last.answer
        for lost in (str(name) for body in bodies for name in body.get("unreachables", ())):
            words = f"Google cannot reach {lost}"
            unlisted[project, False, lost.rpartition("/")[2]] = Answer(Outcome.UNKNOWN, words)
        return read_instances(project, bodies)
