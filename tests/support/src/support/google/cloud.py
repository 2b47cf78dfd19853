"""The state of the test server: zones, machines, and what happens when."""

import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from support.google.metadata import MetadataServer
from support.google.schemas import Method
from support.google.words import Failure, Refusal

VALID_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY: Final = re.compile(r"[a-z][-_a-z0-9]{0,62}")
LABEL_VALUE: Final = re.compile(r"[-_a-z0-9]{0,63}")
METADATA_BYTES: Final = 256 * 1024  # of one value
Json = dict[str, Any]


class Refused(Exception):
    """A request is refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an API.

    Args:
        method: The method of the API.
        path: The path.
        names: The parts of the path, by the names in the discovery document.
        failure: What the operation is told to end in.
    """

    method: Method
    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Json
    failure: Failure | None = None

    @property
    def project(self) -> str:
        """Return the project."""
        return self.names.get("project") or self.names.get("projectsId") or self.names.get("projectId", "")

    @property
    def zone(self) -> str:
        """Return the zone; `-` for all."""
        return self.names.get("zone") or self.names.get("locationsId", "")

    @property
    def words(self) -> dict[str, str]:
        """Return what a refusal names."""
        body = self.body
        name = self.query.get("nodeId") or self.query.get("queuedResourceId") or body.get("name") or self.path
        kind = body.get("acceleratorType") or body.get("machineType", "")
        region = self.zone.rpartition("-")[0]
        return {"project": self.project, "zone": self.zone, "region": region, "name": str(name), "type": str(kind)}

    def refuse(self, refusal: Refusal, **words: str) -> Refused:
        """Return the exception for a refusal of this request."""
        return Refused(refusal.filled(**{**self.words, **words}))


@dataclass
class Zone:
    """A zone, and what goes wrong there.

    Args:
        stock_out: Creations are accepted and fail: there is no capacity.
        no_reservation: Queued resources fail: the reservation is too small.
        unreachable: It cannot be listed.
        slow_boots: Machines stay in creation until this is False again.
        stuck_deletes: Deletions stay begun until this is False again.
        quota: The chips of each quota of the TPU API; the CPUs of Compute Engine under "CPUS".
        offers: Accelerator types there; None for all.
    """

    name: str
    stock_out: bool = False
    no_reservation: bool = False
    unreachable: bool = False
    slow_boots: bool = False
    stuck_deletes: bool = False
    quota: dict[str, int] = field(default_factory=dict)
    offers: frozenset[str] | None = None


@dataclass(eq=False)
class Machine:
    """A host: of a TPU node, or a virtual machine.

    Args:
        owner: The full name of the node or instance.
        number: Its number in the node; 0 for a virtual machine.
        attributes: The metadata given at creation: `startup-script` and others.
        guest: Guest attributes, by namespace and key.
        serial, serial_file: The output of its serial port, and where more of it is.
        up: Whether it runs.
        metadata: Its metadata server.
    """

    owner: str
    number: int
    zone: str
    address: str
    attributes: dict[str, str]
    guest: dict[tuple[str, str], str] = field(default_factory=dict)
    serial: str = ""
    serial_file: Path | None = None
    up: bool = False

    def __post_init__(self) -> None:
        _, project, _, zone, kind, name = self.owner.split("/")
        of_tpu = {
            "instance/name": self.host_name,
            "instance/attributes/agent-worker-number": str(self.number),
            "instance/attributes/instance-id": name,
        }
        identity = {
            "project/project-id": project,
            "project/numeric-project-id": "1037372895180",
            "instance/name": name,
            "instance/zone": f"projects/1037372895180/zones/{zone}",
            "instance/network-interfaces/0/ip": self.address,
            **(of_tpu if kind == "nodes" else {}),
        }
        self.metadata = MetadataServer(identity, self.attributes, self.guest)

    @property
    def host_name(self) -> str:
        """Return the host's own name; of a TPU, no part of it is the node's."""
        of_tpu = "/nodes/" in self.owner
        return f"t1v-n-{crc32(self.owner.encode()):08x}-w-{self.number}" if of_tpu else self.name

    @property
    def output(self) -> bytes:
        """Return what its serial port has shown."""
        return self.serial.encode() + (self.serial_file.read_bytes() if self.serial_file else b"")

    @property
    def name(self) -> str:
        """Return the short name of the node or instance."""
        return self.owner.rpartition("/")[2]


@dataclass(order=True)
class _Due:
    at: float
    number: int
    act: Callable[[], None] = field(compare=False)
    held: Callable[[], bool] = field(compare=False)


def _split(held: list[_Due]) -> tuple[list[_Due], list[_Due]]:
    """Return what may happen, and what is still held."""
    ready = [due for due in held if not due.held()]
    numbers = {due.number for due in ready}
    return ready, [due for due in held if due.number not in numbers]


class Cloud:
    """All that the server has. Records are the bodies that it answers with, by full name; `lock` guards them.

    Args:
        now: Returns the seconds of an injected clock.
        operation_s, boot_s, delete_s: How long an operation takes, a machine boots, a deletion takes.
        addresses: Returns the address of the machine with a number, from 1.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        operation_s: float,
        boot_s: float,
        delete_s: float,
        addresses: Callable[[int], str],
    ) -> None:
        self.now, self.operation_s, self.boot_s, self.delete_s = now, operation_s, boot_s, delete_s
        self.lock = threading.RLock()
        self.zones: dict[str, Zone] = {}
        self.nodes: dict[str, Json] = {}
        self.queued: dict[str, Json] = {}
        self.instances: dict[str, Json] = {}
        self.operations: dict[str, Json] = {}
        self.policy: Json = {"bindings": [], "etag": "BwYd"}
        self.accounts: dict[str, Json] = {}
        self.common_metadata: Json = {"items": []}
        self.machines: dict[str, list[Machine]] = {}
        self.events: deque[tuple[str, Machine]] = deque()
        self.page = 500
        self._addresses = addresses
        self._counts = 0
        self._due: list[_Due] = []  # a heap
        self._held: list[_Due] = []

    def zone(self, name: str) -> Zone:
        """Return a zone; it exists as soon as it is named."""
        return self.zones.setdefault(name, Zone(name))

    def number(self) -> int:
        """Return a number not used before."""
        self._counts += 1
        return self._counts

    def timestamp(self) -> str:
        """Return the clock's time as Google writes it."""
        return datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

    def later(self, seconds: float, act: Callable[[], None], held: Callable[[], bool] = lambda: False) -> None:
        """Let something happen in `seconds`, and not before `held()` is False."""
        heappush(self._due, _Due(self.now() + seconds, self.number(), act, held))

    def settle(self) -> None:
        """Let happen what is due by the clock."""
        with self.lock:
            while True:
                while self._due and self._due[0].at <= self.now():
                    self._held.append(heappop(self._due))
                ready, self._held = _split(self._held)
                if not ready:
                    return
                for due in ready:
                    due.act()

    def add_machines(self, owner: str, zone: str, count: int, attributes: Mapping[str, str]) -> list[Machine]:
        """Return the machines of a new node or instance; none runs."""
        made = [
            Machine(owner, number, zone, self._addresses(self.number()), dict(attributes)) for number in range(count)
        ]
        self.machines[owner] = made
        return made

    def boot(self, owner: str) -> None:
        """Start the machines of a node or instance."""
        for machine in self.machines.get(owner, ()):
            if not machine.up:
                machine.up = True
                self.events.append(("boot", machine))

    def halt(self, owner: str, number: int | None = None) -> None:
        """Stop the machines of a node or instance, or one of them."""
        for machine in self.machines.get(owner, ()):
            if machine.up and number in (None, machine.number):
                machine.up = False
                self.events.append(("stop", machine))

    def forget(self, records: dict[str, Json], owner: str) -> None:
        """Remove a node or instance, and its machines."""
        self.halt(owner)
        records.pop(owner, None)
        for machine in self.machines.pop(owner, ()):
            self.events.append(("gone", machine))


def check_names(call: Call, name: str, labels: Mapping[str, str], metadata: Mapping[str, str], bad: Refusal) -> None:
    """Refuse a name, labels or metadata that Google would not take."""
    if not VALID_NAME.fullmatch(name):
        raise call.refuse(bad, name=f"invalid name {name!r}", type=name)
    for key, value in labels.items():
        if not (LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
            raise call.refuse(bad, name=f"labels: {key}", type=value)
    if len(labels) > 64:
        raise call.refuse(bad, name="labels", type=f"{len(labels)} labels")
    for key, value in metadata.items():
        if len(value.encode()) > METADATA_BYTES:
            raise call.refuse(bad, name=f"metadata.items[{key}]", type=f"{len(value)} bytes")


def page(call: Call, records: Mapping[str, Json], wanted: Callable[[str], bool], size: int) -> tuple[list[str], Json]:
    """Return the names of one page of a list, and the answer's `nextPageToken`: the last name before it."""
    after = call.query.get("pageToken", "")
    names = [name for name in sorted(records) if name > after and wanted(name)]
    count = min(int(call.query.get("pageSize") or call.query.get("maxResults") or size), size)
    return names[:count], {"nextPageToken": names[count - 1]} if count < len(names) else {}
