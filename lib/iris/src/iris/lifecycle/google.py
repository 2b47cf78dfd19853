"""A cluster's machines at Google."""

from collections.abc import Mapping, Sequence
from typing import Final

from iris.autoscale.gcp.api import GoogleApi
from iris.autoscale.gcp.inventory import Inventory, zones_of
from iris.autoscale.gcp.machines import (
    controller_place,
    create_controller,
    read_guest_attributes,
    read_serial_port,
    restart,
)
from iris.autoscale.gcp.ownership import Owner
from iris.autoscale.gcp.reading import Kind, Listed, Place
from iris.autoscale.model import Answer
from iris.autoscale.port import Phase
from iris.autoscale.rules import ControllerHost
from iris.domain.scale_groups import ScaleGroup
from iris.lifecycle.machines import Found, Machine

_NAMESPACE: Final = "iris"
_ENDING: Final = frozenset({"STOPPING", "PENDING_STOP", "SUSPENDING"})
"""States of an instance that is being deleted, or stopped: which of them, Google does not tell."""


class GoogleMachines:
    """The machines of a cluster at Google (`Machines`).

    Args:
        api: The client.
        owner: The cluster.
        project: The controller's project, and that of groups that name none.
        host: The settings of the controller's virtual machine.
        groups: The scale groups.
        poll_s: Interval between looks at an operation.
    """

    def __init__(
        self,
        api: GoogleApi,
        owner: Owner,
        project: str,
        host: ControllerHost,
        groups: Sequence[ScaleGroup],
        poll_s: float = 1.0,
    ) -> None:
        self._api, self._owner, self._host, self._poll_s = api, owner, host, poll_s
        self._place = controller_place(owner, project, host)
        self._inventory = Inventory(api, owner, zones_of(project, groups))
        self._places: dict[str, Place] = {}

    async def find(self) -> Found:
        survey = await self._inventory.survey()
        self._places = {each.place.name: each.place for each in survey.found}
        machines = sorted(map(_machine, survey.found), key=lambda each: (each.is_controller, each.name))
        lost = {
            f"{'TPUs' if is_tpu else 'virtual machines'} in {'all zones' if zone == '-' else zone} ({project}): "
            f"{answer.words}"
            for (project, is_tpu, zone), answer in survey.unlisted.items()
        }
        return Found(tuple(machines), tuple(sorted(lost)))

    async def create_controller(self, script: str) -> Answer:
        return await create_controller(self._api, self._owner, self._place, self._host, script, poll_s=self._poll_s)

    async def restart_controller(self, machine: Machine, script: str) -> Answer:
        return await restart(self._api, self._owner, self._places[machine.name], script, poll_s=self._poll_s)

    async def delete(self, machines: Sequence[Machine]) -> Mapping[Machine, Answer]:
        answers = await self._inventory.delete_all([self._places[machine.name] for machine in machines])
        return {machine: answers[self._places[machine.name]] for machine in machines}

    async def phases(self, machine: Machine) -> tuple[Mapping[str, str], ...]:
        return await read_guest_attributes(self._api, self._places[machine.name], _NAMESPACE)

    async def console(self, machine: Machine, start: int = 0) -> tuple[str, int]:
        return await read_serial_port(self._api, self._places[machine.name], start)

    async def close(self) -> None:
        await self._api.close()


def _machine(each: Listed) -> Machine:
    place = each.place
    return Machine(
        place.name,
        place.kind,
        place.zone,
        each.group,
        each.type,
        Phase.DELETING if each.state in _ENDING else each.phase,
        each.state,
        each.words,
        each.addresses,
        each.external_addresses,
        each.is_controller,
        place.kind is Kind.INSTANCE,
    )
