"""A supervisor with a fake guardian and a fake preparer."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually_async
from iris.domain.states import TaskState
from iris.rpc.logformat import Record, decode_all
from iris.worker.attempts.ports import PortChooser
from iris.worker.attempts.rooms import Room, Rooms, furnish
from iris.worker.attempts.supervisor import Supervisor
from iris.worker.devices.allotment import NO_CHIPS, Allotment, Chips
from iris.worker.isolation.plan import IsolationMode
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import PreparedEnvironment, TaskEnvironment
from iris.worker.processes import InheritedAttempt, Listener, ProcessSpec
from iris.worker.types import (
    DesiredChange,
    Launch,
    Observation,
    StartRequest,
    StopRequest,
)
from iris.worker.users.identity import TaskIdentity

COMMAND = Launch("/u/job", ("true",))
BUNDLE = replace(COMMAND, bundle_digest="b1")


class Command:
    """One command given to the fake guardian, with the guardian's state of it."""

    def __init__(self, spec: ProcessSpec | None, listener: Listener) -> None:
        self._given = spec
        self.listener = listener
        self.stops: list[tuple[int, Mapping[str, Any] | None]] = []

    @property
    def given(self) -> ProcessSpec:
        """Return the command in the guardian's format, with common parts separate."""
        assert self._given is not None
        return self._given

    @property
    def spec(self) -> ProcessSpec:
        return self.given.whole()

    def terminate(self, grace_ms: int, note: Mapping[str, Any] | None = None) -> None:
        self.stops.append((grace_ms, note))


class FakeRuntime:
    isolation = IsolationMode.OVERLAY

    def __init__(self, held: Sequence[InheritedAttempt]) -> None:
        self.commands: dict[str, Command] = {}
        self.live_count, self.most_live = 0, 100
        self.forgotten: list[str] = []
        self.forget = self.forgotten.append
        self.contacts: list[int] = []
        self.contact = self.contacts.append
        self.why = ""
        self.trouble = lambda: self.why
        self.held = lambda: held

    def start(self, spec: ProcessSpec, listener: Listener) -> Command:
        assert spec.owner not in self.commands, "nothing is started twice"
        self.live_count += 1
        self.commands[spec.owner] = Command(spec, listener)
        return self.commands[spec.owner]

    def take_up(self, owner: str, listener: Listener) -> Command:
        self.commands[owner] = Command(None, listener)
        return self.commands[owner]


class FakePreparer:
    def __init__(self) -> None:
        self.known: PreparedEnvironment | None = None
        self.answer: PreparedEnvironment | Exception = PreparedEnvironment(bin_dirs=("/env/bin",))
        self.go = asyncio.Event()
        self.go.set()
        self.cancelled = 0
        self.closed = False

    def ready(self, launch: Launch) -> PreparedEnvironment | None:
        return self.known

    async def prepare(self, launch: Launch) -> PreparedEnvironment:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def compiled(self, tree: Path, python: str) -> str:
        return ""

    async def close(self) -> None:
        self.closed = True


class Ports(PortChooser):
    """A fake allocator of ports: it raises `error` on requests, and records returned ports."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.released: list[str] = []

    def free_ports(self, names: Sequence[str], owner: str = "") -> dict[str, int]:
        if self.error is not None:
            raise self.error
        return super().free_ports(names, owner)

    def release(self, owner: str) -> None:
        self.released.append(owner)
        super().release(owner)


class Bench:
    """A supervisor, and the reports it sends."""

    def __init__(self, root: Path, held: Sequence[InheritedAttempt] = (), chips: Chips = NO_CHIPS) -> None:
        self.paths = WorkPaths(root)
        self.allotment = Allotment(chips)
        self.paths.make()
        self.runtime, self.preparer = FakeRuntime(held), FakePreparer()
        self.ports = Ports()
        self.now, self.address = 100.0, "c:1"
        self.blobs: dict[str, bytes] = {}
        self.may_send = asyncio.Event()
        self.supervisor = Supervisor(
            self.paths,
            self.runtime,  # type: ignore[arg-type]
            Rooms(self.room),
            now=lambda: self.now,
            hand_back_s=60.0,
            send_blob=self.send_blob,
        )
        self.supervisor.take_up_held()
        self.outbox = self.supervisor.outbox

    def room(self, identity: TaskIdentity | None, user: str, refusal: str) -> Room:
        assert identity is None, user
        environment = TaskEnvironment(self.paths, "w1", {"PATH": "/bin"})
        preparer, address = self.preparer, lambda: self.address
        return furnish(
            self.paths,
            IsolationMode.OVERLAY,
            preparer,
            environment,
            address,
            ports=self.ports,
            allotment=self.allotment,
            refusal=refusal,
        )

    async def send_blob(self, digest: str, data: bytes) -> None:
        await self.may_send.wait()
        self.blobs[digest] = data

    def ask(self, index: int = 0, attempt: int = 0, launch: Launch = COMMAND, prefilled: bool = False) -> str:
        task = f"{launch.job_id}/{index}"
        request = StartRequest(f"{task}:{attempt}", task, index, launch, prefilled)
        self.supervisor.apply(DesiredChange(1, (request,), (), ()))
        return request.attempt_id

    async def handed(self, index: int = 0, launch: Launch = COMMAND) -> Command:
        """Return a command that the guardian was told to start."""
        name = self.ask(index, launch=launch)
        await settle()
        return self.runtime.commands[name]

    async def run(self, index: int = 0, attempt: int = 0, launch: Launch = COMMAND) -> Command:
        return await self.begun(self.ask(index, attempt, launch))

    async def begun(self, name: str) -> Command:
        await settle()
        command = self.runtime.commands[name]
        command.listener.on_started(4711)
        return command

    def stop(self, name: str, grace_ms: int = 50, reason: str = "enough", notice: str = "") -> None:
        self.supervisor.apply(DesiredChange(1, (), (StopRequest(name, grace_ms, reason, notice),), ()))

    def withdraw(self, *names: str) -> None:
        self.supervisor.apply(DesiredChange(1, (), (), (), names))

    def forget(self, *names: str) -> None:
        self.supervisor.apply(DesiredChange(1, (), (), names))

    def said(self) -> list[Observation]:
        return self.outbox.take().observations

    def states(self) -> dict[str, TaskState]:
        return {item.attempt_id: item.state for item in self.said()}

    async def reaches(self, state: TaskState) -> Observation:
        """Wait until the attempt reports a state, and return the report. Its file is read in a thread."""
        found = await eventually_async(lambda: [item for item in self.said() if item.state is state], str(state))
        return found[0]

    async def failure(self) -> tuple[Observation, list[Record]]:
        """Return the report of an attempt that could not start, and its log, which comes first."""
        await settle()
        batch = self.outbox.take()
        (ended,) = batch.observations or self.said()
        return ended, [record for chunk in batch.logs for record in decode_all(chunk.data)]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def bench(runner: asyncio.Runner, tmp_path: Path) -> Bench:
    async def make() -> Bench:
        return Bench(tmp_path / "work")

    return runner.run(make())
