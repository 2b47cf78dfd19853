"""A simulated host: the real worker (agent, session, supervisor) with simulated processes."""

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from iris.domain.ids import AttemptId, JobId, parse_attempt_id, parse_task_id
from iris.domain.job_spec import JobSpec
from iris.domain.resources import Resources
from iris.domain.states import PreemptionReason
from iris.rpc.auth import PrincipalKind, make_token
from iris.rpc.controller_address import ControllerAddress
from iris.sim.network import Network
from iris.sim.physics import Physics, Running
from iris.sim.programs import Preparer, Program
from iris.sim.world import Handle, Node, World
from iris.worker.attempts.rooms import Rooms, furnish
from iris.worker.attempts.supervisor import Supervisor
from iris.worker.connection.agent import Agent, AgentEnd
from iris.worker.connection.session import WorkerIdentity
from iris.worker.isolation.plan import IsolationMode
from iris.worker.output.log_writer import LogWriter
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import TaskEnvironment
from iris.worker.processes import NOT_FOUND, Exit, InheritedAttempt, Listener, ProcessSpec, StartFailed, StartFailure
from iris.worker.types import Observation
from rigging.errors import NotFound
from rigging.timing import ExponentialBackoff

_KILL_TAKES_S: Final = 0.02
_FENCE_TICK_S: Final = 1.0
_LAST_WORDS_S: Final = 2.0
_STOP_GRACE_S: Final = 3.0
_EPOCH_S: Final = 1_700_000_000


@dataclass
class SimContext:
    """The shared parts of all hosts.

    Args:
        program_of: Returns the program of a job's tasks. spec_of: Returns the job's spec. Both take the job's name and
            sequence of attempts.
        run_children: Called by a process whose program has children; starts a task of the given node.
        worker_fault: Returns whether the next start on a host fails because of the host, e.g. a full disk.
    """

    world: World
    network: Network
    physics: Physics
    source: random.Random
    root: Path
    secret: bytes
    program_of: Callable[[JobId, int], Program]
    spec_of: Callable[[JobId, int], JobSpec]
    run_children: Callable[["Process", Node, str], None]
    worker_fault: Callable[[], bool] = lambda: False


class Process:
    """One simulated process; it outlives its agent unless the host dies."""

    def __init__(
        self,
        host: "SimHost",
        attempt_id: AttemptId,
        program: Program,
        spec: JobSpec,
        token_file: str,
        log: str,
        fence_ms: int,
    ) -> None:
        context = host.context
        self.attempt_id = attempt_id
        self.program = program
        self.spec = spec
        self.host = host
        self.pid = context.physics.starts + 100
        task_id, self.number = parse_attempt_id(attempt_id)
        self.index = parse_task_id(task_id)[1]
        self.running: Running = context.physics.start(attempt_id, host.name, host.capacity, spec)
        self.listener: tuple[Node, Listener] | None = None
        self._log = LogWriter(log)
        self._fence_ms = fence_ms
        self._is_over = False
        self._timer: Handle | None = None
        self._node: Node | None = None
        self._deadline_s = 0.0  # of the notice of its preemption
        self._has_saved = False
        context.world.trace.note(context.world.now, host.name, f"{attempt_id} begins to run")
        host.processes[attempt_id] = self
        if fence_ms:
            context.world.call_in(_FENCE_TICK_S, self._look_at_fence)
        if program.children and self.index == 0:
            self._node = Node(context.world, f"task {attempt_id}")
            context.run_children(self, self._node, Path(token_file).read_text())
        else:
            self._timer = context.world.call_in(self._duration_s(), self.finish)

    def finish(self, children_code: int | None = None) -> None:
        """End the command normally."""
        code, number = self.program.ending(self.index, self.number)
        if children_code:
            code = children_code
        if self.program.output:
            self._write(b"line of output\n" * (self.program.output // 15 + 1))
        tail = b"Connection closed by peer\n" if self.program.blames_peer else b""
        self._end(Exit(code, number, tail), by_itself=True)

    def terminate(self, grace_ms: int, note: Mapping[str, Any] | None = None) -> None:
        context = self.host.context
        _, _, is_leaving, _, notice = (note or {}).get("stop", ("", 0, False, False, ""))
        if notice or is_leaving:
            due_s = context.world.now + grace_ms / 1000
            self._deadline_s = min(self._deadline_s or due_s, due_s) if notice else 0.0
        context.physics.tell(self.attempt_id, notice)
        if notice and self.program.resumes:
            context.world.call_in(context.source.uniform(0.2, 0.9) * grace_ms / 1000, self._save)
        elif not self.program.ignores_term:
            context.world.call_in(context.source.uniform(0, 1), self._end, Exit(0, signal.SIGTERM))
        context.world.call_in(grace_ms / 1000 + _KILL_TAKES_S, self._kill)

    def _duration_s(self) -> float:
        context, program = self.host.context, self.program
        saved_s = context.physics.saved_s.get(self.running.job_id, 0)
        return max(program.seconds - saved_s, 0) if program.resumes else program.duration(context.source)

    def _save(self) -> None:
        if not self._is_over:
            self.host.context.physics.save(self.running)
            self._has_saved = True
            self._end(Exit(0, signal.SIGTERM))

    def _kill(self) -> None:
        context = self.host.context
        if not self._is_over and context.world.now < self._deadline_s:
            context.physics.violations.append(f"{self.attempt_id} is killed before the deadline of its notice")
        self._end(Exit(0, signal.SIGKILL))

    def _look_at_fence(self) -> None:
        """Kill the process when its fence has expired, like the guardian, regardless of the agent's state."""
        if self._is_over:
            return
        if self.host.is_beyond_fence(self._fence_ms):
            self._end(Exit(0, signal.SIGKILL, fenced="there was no contact with the controller"))
        else:
            self.host.context.world.call_in(_FENCE_TICK_S, self._look_at_fence)

    def vanish(self) -> None:
        """End the process because the host is gone, or because a new agent kills the processes of an earlier agent."""
        self.listener = None
        self._end(Exit(0, signal.SIGKILL))

    def _write(self, data: bytes) -> None:
        if self.listener is not None and not self.listener[0].is_dying:
            node, listener = self.listener
            self._log.feed(False, data, 0)
            node.call_soon(listener.on_log, self._log.size)

    def _end(self, exit: Exit, by_itself: bool = False) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._node is not None:
            self._node.kill("its process ended")
        world = self.host.context.world
        world.trace.note(world.now, self.host.name, f"{self.attempt_id} ends: {exit.text()}")
        ending = (-exit.signal or exit.code) if by_itself else None
        self.host.context.physics.end(self.running, ending)
        if self.program.resumes and not by_itself and not self._has_saved:
            self.host.context.physics.unsaved.append(self.attempt_id)
        del self.host.processes[self.attempt_id]
        self._log.close()
        if self.listener is not None and not self.listener[0].is_dying:
            node, listener = self.listener
            node.call_soon(self.host.reap, node, self.attempt_id)
            node.call_soon(listener.on_exit, exit)


class _Runtime:
    """Replaces the guardian."""

    most_live = 1_000_000
    isolation = IsolationMode.OVERLAY

    def __init__(self, host: "SimHost", node: Node) -> None:
        self._host = host
        self._node = node
        self.processes: dict[AttemptId, Process] = {}

    @property
    def live_count(self) -> int:
        return len(self.processes)

    def start(self, spec: ProcessSpec, listener: Listener) -> "Process | _Refused":
        context = self._host.context
        spec = spec.whole()
        attempt_id = AttemptId(spec.owner)
        task_id, number = parse_attempt_id(attempt_id)
        job_id, _ = parse_task_id(task_id)
        program = context.program_of(job_id, number)
        if program.cannot_start:
            return self._refuse(listener, StartFailed(f"command {spec.argv[0]!r} not found", NOT_FOUND))
        if context.worker_fault():
            return self._refuse(listener, StartFailed("No space left on device", why=StartFailure.HOST))
        if spec.fence_ms and self._host.is_beyond_fence(spec.fence_ms):
            return self._refuse(listener, StartFailed("no contact", why=StartFailure.FENCED))
        what = context.spec_of(job_id, number)
        token_file = spec.env["IRIS_TOKEN_FILE"]
        process = Process(self._host, attempt_id, program, what, token_file, spec.log, spec.fence_ms)
        process.listener = (self._node, listener)
        self._node.call_soon(listener.on_started, process.pid)
        self.processes[attempt_id] = process
        if self._host.crash_at_start_s is not None:
            context.world.call_in(self._host.crash_at_start_s, self._host.crash)
            context.world.call_in(context.source.uniform(0.2, 4), self._host.start)
            self._host.crash_at_start_s = None
        return process

    def held(self) -> list[InheritedAttempt]:
        return []

    def take_up(self, owner: str, listener: Listener) -> Process:
        del listener
        raise LookupError(f"{owner} is not held: an agent here begins with nothing")

    def trouble(self) -> str:
        return ""

    def contact(self, sent_ms: int) -> None:
        self._host.contact_ms = max(sent_ms, self._host.contact_ms)

    def forget(self, owner: str) -> None: ...

    def _refuse(self, listener: Listener, error: StartFailed) -> "_Refused":
        self._node.call_soon(listener.on_refused, error)
        return _Refused()


class _Refused:
    """Replaces a process that is never started."""

    def terminate(self, grace_ms: int, note: Mapping[str, Any] | None = None) -> None: ...


@dataclass
class _Link:
    """Replaces GrpcControllerLink."""

    network: Network
    node: Node
    worker_id: str
    address: str
    token: str
    streams: list[Any] = field(default_factory=list)

    def open_session(self) -> Any:
        stream = self.network.open_stream(self.node, self.worker_id, self.token)
        self.streams.append(stream)
        return stream

    async def fetch(self, digests: list[str]) -> AsyncIterator[tuple[str, int, bytes, bool]]:
        for digest in digests:
            if digest:
                raise NotFound(f"there is no blob {digest} in a simulation")
            yield "", 0, b"", True

    async def upload(self, digest: str, data: bytes) -> None:
        raise NotFound(f"blob {digest} of {len(data)} bytes has no place")

    async def close(self) -> None:
        for stream in self.streams:
            stream.cancel()
        self.streams.clear()


class SimHost:
    """A machine with one worker, powered on by `start`.

    Args:
        skew_s: Error of its clock.

    Attributes:
        contact_ms: When it sent the last acknowledged heartbeat.
        crash_at_start_s: The agent dies this long after the next process starts; None for never.
    """

    def __init__(
        self, context: SimContext, name: str, capacity: Resources, attributes: Mapping[str, str], skew_s: float
    ) -> None:
        self.context = context
        self.name = name
        self.capacity = capacity
        self.attributes = attributes
        self.processes: dict[AttemptId, Process] = {}
        self.node: Node | None = None
        self.supervisor: Supervisor | None = None
        self.agent: Agent | None = None
        self.crash_at_start_s: float | None = None
        self.contact_ms = 0
        self._skew_s = skew_s
        self._lives = 0
        self._runtime: _Runtime | None = None
        self._serving: asyncio.Task[AgentEnd] | None = None

    @property
    def is_up(self) -> bool:
        return self.node is not None and not self.node.is_dying

    def is_beyond_fence(self, fence_ms: int) -> bool:
        """Return whether the fence has expired since the last contact with the controller."""
        return self.clock_ms() - self.contact_ms > fence_ms

    def clock_ms(self) -> int:
        """Return the monotonic clock that measures contact (ms)."""
        return int(self.context.world.now * 1000)

    def freeze(self, for_s: float) -> None:
        """Suspend the agent, as by SIGSTOP; its processes and the fence continue."""
        if self.node is not None:
            self.node.freeze(self.context.world.now + for_s)

    def inventory(self) -> list[Observation]:
        """Return the observations of its worker, if running."""
        return self.supervisor.inventory() if self.supervisor is not None and self.is_up else []

    def start(self) -> None:
        """Start the agent. Like the real agent, it first kills the processes of an earlier one."""
        if self.is_up:
            return
        for process in list(self.processes.values()):
            process.vanish()
        self._lives += 1
        node = self.node = Node(self.context.world, f"{self.name}#{self._lives}")
        node.run(self._build, node)

    def crash(self) -> None:
        """Kill the agent. Its processes continue until the next agent starts."""
        if self.node is not None:
            self.node.kill("agent crashed")

    def vanish(self) -> None:
        """Remove the machine with everything on it."""
        self.crash()
        for process in list(self.processes.values()):
            process.vanish()

    def leave(self, notice: PreemptionReason | None = None) -> None:
        """Let the agent end and report its attempts, and exit: SIGTERM, or a notice of the platform's."""
        if self.is_up and self.node is not None:
            self.node.run(self.node.create_task, self._leave(self.node, notice))

    def reap(self, node: Node, attempt_id: AttemptId) -> None:
        """Handle the end of a process that the runtime started."""
        if self._runtime is not None and node is self.node:
            self._runtime.processes.pop(attempt_id, None)

    async def _leave(self, node: Node, notice: PreemptionReason | None) -> None:
        assert self.supervisor is not None
        assert self.agent is not None
        assert self._serving is not None
        await self.supervisor.stop_all(f"worker {self.name} ended", int(_STOP_GRACE_S * 1000), notice)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self.agent.leave()
                await asyncio.wait((self._serving,))
        node.call_soon(node.kill, "left")

    def _build(self, node: Node) -> None:
        context = self.context
        paths = WorkPaths(context.root / self.name / str(self._lives))
        paths.make()
        token = make_token(context.secret, PrincipalKind.WORKER, self.name)
        identity = WorkerIdentity(self.name, f"life {self._lives}", self.capacity, self.attributes, place=self.name)
        self.agent = Agent(
            identity,
            lambda: ControllerAddress("controller", token),
            orphan_timeout_s=1e9,
            backoff=ExponentialBackoff(initial=0.05, maximum=2, factor=1.6, jitter=0.2, source=context.source),
            monotonic=node.time,
            open_link=lambda place: _Link(context.network, node, self.name, place.address, place.token),
            contact_clock=self.clock_ms,
        )
        self._runtime = _Runtime(self, node)
        environment = TaskEnvironment(paths, self.name, {"PATH": ""})
        room = furnish(paths, self._runtime.isolation, Preparer(context.program_of), environment, self.agent.address)
        self.supervisor = Supervisor(
            paths,
            self._runtime,
            Rooms(lambda identity, user, refusal: room),  # noqa: ARG005
            now=lambda: _EPOCH_S + context.world.now + self._skew_s,
        )
        self.supervisor.take_up_held()
        self._serving = node.create_task(self.agent.run(self.supervisor))
