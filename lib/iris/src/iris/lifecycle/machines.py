"""The machines of a cluster, behind one port for all platforms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from iris.autoscale.model import Answer
from iris.autoscale.port import Phase

CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class Machine:
    """Something that a cluster has: a slice or its controller.

    Args:
        name: The slice's name; of the controller, its machine's name.
        kind: The platform's word for it: "node", "instance", "host".
        zone: Where it is.
        group: Its scale group; empty for the controller.
        type: The accelerator type or machine type.
        phase: What its state means. state: The platform's word for it.
        words: The platform's words about its state.
        addresses: Addresses of its hosts inside the platform's network, in order. external: The same, from outside.
        is_controller: Whether it is the controller's.
        has_console: Whether `Machines.console` works.
    """

    name: str
    kind: str
    zone: str
    group: str
    type: str
    phase: Phase
    state: str
    words: str = ""
    addresses: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    is_controller: bool = False
    has_console: bool = False

    def __str__(self) -> str:
        return f"{CONTROLLER if self.is_controller else 'slice'} {self.name}"


@dataclass(frozen=True, slots=True)
class Found:
    """The machines of a cluster.

    Args:
        machines: Slices by name, the controller last.
        unlisted: Places that could not be listed, each with the reason.
    """

    machines: tuple[Machine, ...]
    unlisted: tuple[str, ...] = ()

    @property
    def controller(self) -> Machine | None:
        """Return the controller's machine; None if there is none."""
        return next((machine for machine in self.machines if machine.is_controller), None)


class Machines(Protocol):
    """The operations of a platform on a cluster's machines. No call raises for a refusal: it returns the answer."""

    async def find(self) -> Found:
        """Return all machines of the cluster, however many, by a few requests."""
        ...

    async def create_controller(self, script: str) -> Answer:
        """Create the controller's machine with a startup script; DONE if there is one already."""
        ...

    async def restart_controller(self, machine: Machine, script: str) -> Answer:
        """Restart the controller's machine with another startup script. Its disk stays."""
        ...

    async def delete(self, machines: Sequence[Machine]) -> Mapping[Machine, Answer]:
        """Begin to delete machines, all at the same time, and return the answers."""
        ...

    async def phases(self, machine: Machine) -> tuple[Mapping[str, str], ...]:
        """Return what each host of a machine tells of its start: `phase` and others. Raise MarinError."""
        ...

    async def console(self, machine: Machine, start: int = 0) -> tuple[str, int]:
        """Return the output of a machine's console from a byte on, and the byte after it. Raise MarinError."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
