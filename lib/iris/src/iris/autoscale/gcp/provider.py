"""The provider of slices at Google."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from iris.autoscale.gcp.api import GoogleApi
from iris.autoscale.gcp.bodies import instance_body, node_body, queued_resource_body
from iris.autoscale.gcp.inventory import Inventory, Survey, project_of, zones_of
from iris.autoscale.gcp.outcomes import Json, answer_of_operation
from iris.autoscale.gcp.ownership import GROUP_LABEL, Owner, label_value
from iris.autoscale.gcp.reading import Kind, Place
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Listing, Phase, SliceFound, SliceOrder
from iris.domain.scale_groups import CapacityType, GcpTemplate, ScaleGroup
from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class _Creation:
    """A creation that Google accepted: the path of its operation, and what to report until Google lists the slice."""

    operation: str
    unlisted: SliceFound


class GcpProvider:
    """Slices at Google: TPU nodes, queued resources for reserved TPUs, and virtual machines (`SliceProvider`).

    Google may accept a creation and fail later, in an operation. `list` reads the operations of accepted slices that
    Google does not list. It reports a failed one as BROKEN, with the outcome, until the slice is deleted.

    Args:
        api: The client.
        owner: The cluster.
        project: The project of groups that name none.
        groups: The scale groups.
        startup_script: Returns the startup script of a slice's hosts.
    """

    def __init__(
        self,
        api: GoogleApi,
        owner: Owner,
        project: str,
        groups: Iterable[ScaleGroup],
        startup_script: Callable[[SliceOrder], str],
    ) -> None:
        self._api, self._owner, self._project, self._script = api, owner, project, startup_script
        self._groups = {group.name: group for group in groups if isinstance(group.template, GcpTemplate)}
        self._names = {label_value(name): name for name in self._groups}
        self._inventory = Inventory(api, owner, zones_of(project, self._groups.values()))
        self._places: dict[str, Place] = {}
        self._creations: dict[str, _Creation] = {}

    async def create(self, order: SliceOrder) -> Answer:
        place = self._place(order.name, order.group)
        if place is None:
            return Answer(Outcome.CONFIG, f"{order.group} has no slice_template.gcp")
        try:
            body, query = self._request(place, order)
        except InvalidRequest as error:
            return Answer(Outcome.CONFIG, str(error))
        reply = await self._api.call("POST", place.parent, body, query)
        if reply.status == 409:
            return await self._inventory.taken(place, reply)
        if reply.status == 200:
            found = SliceFound(order.name, order.group.name, Phase.CREATING, "Google does not list it yet")
            self._creations[order.name] = _Creation(_operation_path(place, reply.body), found)
        return reply.answer

    async def delete(self, name: str, group: ScaleGroup) -> Answer:
        place = self._places.get(name) or self._place(name, group)
        if place is None:
            return Answer(Outcome.UNKNOWN, f"{group} has no slice_template.gcp, and no list has {name}")
        answer = await self._inventory.delete(place)
        if answer.outcome is Outcome.DONE:
            self._creations.pop(name, None)
        return answer

    async def list(self) -> Listing:
        survey = await self._inventory.survey()
        found = {
            each.place.name: SliceFound(
                each.place.name,
                self._names.get(each.group, each.group),
                each.phase,
                each.words,
                each.addresses,
                outcome=each.outcome,
            )
            for each in survey.found
            if each.group
        }
        places = {each.place.name: each.place for each in survey.found}
        self._places = {name: place for name, place in self._places.items() if _unlisted(survey, place)} | places
        await self._look_at_operations(found)
        answers = {name: survey.unlisted_at(*self._key(group)) for name, group in self._groups.items()}
        return Listing(found, {name: answer for name, answer in answers.items() if answer is not None})

    async def close(self) -> None:
        await self._api.close()

    def _request(self, place: Place, order: SliceOrder) -> tuple[Json, Mapping[str, str]]:
        """Return the body and the parameters of a creation."""
        group, template = order.group, order.group.template
        assert isinstance(template, GcpTemplate)
        labels = self._owner.labels(**{GROUP_LABEL: label_value(group.name)})
        script = self._script(order)
        if place.kind is Kind.INSTANCE:
            if group.hosts_per_slice != 1:
                raise InvalidRequest(f"{group}: hosts_per_slice is {group.hosts_per_slice}; virtual machines allow 1")
            return instance_body(order.name, group, template, labels, script), {}
        body = node_body(group, template, labels, script)
        if place.kind is Kind.NODE:
            return body, {"nodeId": order.name}
        parent = f"projects/{place.project}/locations/{place.zone}"
        body = queued_resource_body(order.name, body, parent, template.reservation)
        return body, {"queuedResourceId": order.name}

    async def _look_at_operations(self, found: dict[str, SliceFound]) -> None:
        """Add to what was found the slices that are accepted but not listed, or that failed."""
        made = [name for name in self._creations if name in found and found[name].phase is Phase.READY]
        for name in made:
            del self._creations[name]
        open_ones = {
            name: creation
            for name, creation in self._creations.items()
            if name not in found or found[name].phase is Phase.BROKEN
        }
        answers = await asyncio.gather(*map(self._answer_of, open_ones.values()))
        for (name, creation), answer in zip(open_ones.items(), answers, strict=True):
            if answer is None:
                found.setdefault(name, creation.unlisted)
            elif answer.outcome is not Outcome.DONE:
                broken = replace(creation.unlisted, phase=Phase.BROKEN, words=answer.words, outcome=answer.outcome)
                found[name] = broken
            elif self._creations.get(name) is creation:
                del self._creations[name]

    async def _answer_of(self, creation: _Creation) -> Answer | None:
        """Return what became of a creation; None if it goes on, or Google does not say."""
        reply = await self._api.call("GET", creation.operation)
        if reply.status == 404:
            return Answer(Outcome.DONE)
        return answer_of_operation(reply.body) if reply.status == 200 else None

    def _key(self, group: ScaleGroup) -> tuple[str, bool, str]:
        is_tpu = isinstance(group.template, GcpTemplate) and group.template.is_tpu
        return project_of(group, self._project), is_tpu, group.zone

    def _place(self, name: str, group: ScaleGroup) -> Place | None:
        template = group.template
        if not isinstance(template, GcpTemplate):
            return None
        tpu = Kind.QUEUED if group.capacity_type is CapacityType.RESERVED else Kind.NODE
        return Place(tpu if template.is_tpu else Kind.INSTANCE, project_of(group, self._project), group.zone, name)


def _operation_path(place: Place, operation: Json) -> str:
    name = operation.get("name", "")
    if place.kind is Kind.INSTANCE:
        return f"compute/v1/projects/{place.project}/zones/{place.zone}/operations/{name}"
    return f"v2/{name}"


def _unlisted(survey: Survey, place: Place) -> bool:
    return survey.unlisted_at(place.project, place.kind is not Kind.INSTANCE, place.zone) is not None
