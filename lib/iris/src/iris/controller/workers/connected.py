"""One connected worker: its greeting, its reports, and the state of its open stream."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from iris.controller.workers.orders import WorkerOrders
from iris.core.rules.rivals import Life
from iris.domain.events import AttemptObserved
from iris.domain.ids import AttemptId, WorkerId
from iris.domain.resources import Resources

FAR_CLOCK_MS: Final = 5000


def is_far(skew_ms: int, error_ms: int) -> bool:
    """Return whether a host's clock differs by enough to mention, beyond the measurement error."""
    return abs(skew_ms) - error_ms > FAR_CLOCK_MS


@dataclass(frozen=True, slots=True)
class Report:
    """A received observation: the event, and the final length of the attempt's log (0 while it runs)."""

    event: AttemptObserved
    log_size: int


@dataclass(slots=True)
class WorkerHost:
    """A connected worker's host, for display.

    Args:
        address: The address of its connection; "unix" for the controller's own machine.
        version: Its release; empty if unknown.
        skew: Its clock minus the controller's, and the maximum error, in ms; None before a measurement.
        rival: The address of another host that tried to connect as this worker and was refused; empty for none.
        rival_ms: The time of the refusal, on the sessions' clock.
    """

    address: str = ""
    version: str = ""
    protocol_version: int = 0
    skew: tuple[int, int] | None = None
    rival: str = ""
    rival_ms: int = 0


@dataclass(frozen=True, slots=True)
class Greeting:
    """A worker's first message: its identity, capacity and inventory."""

    worker_id: WorkerId
    instance_id: str
    capacity: Resources
    attributes: Mapping[str, str]
    inventory: tuple[Report, ...]
    leaving: bool = False
    host: WorkerHost = field(default_factory=WorkerHost)
    place: str = ""


class ConnectedWorker:
    """An open stream of a worker.

    Args:
        worker_id: The worker.
        instance_id: Identifies one run of its guardian.
        host: Its host, for display.
        place: As in `rivals.Life`.
    """

    def __init__(self, worker_id: WorkerId, instance_id: str, host: WorkerHost, place: str = "") -> None:
        self.life = Life(instance_id, place)
        self.host = host
        self.worker_id = worker_id
        self.instance_id = instance_id
        self.orders = WorkerOrders()
        self.superseded = False
        self.is_leaving = False
        self.revision = 0
        # Ends of attempts whose log is not here completely yet: a client that sees the end can read all of the log.
        self.held: dict[AttemptId, tuple[Report, asyncio.TimerHandle]] = {}
