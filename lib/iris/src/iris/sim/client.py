"""Simulated users, which submit, stop and wait like a client, through calls that can get lost."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from iris.domain.ids import JobId, user_of
from iris.domain.states import JobState
from iris.rpc.auth import PrincipalKind, make_token
from iris.rpc.convert_job import spec_to_wire
from iris.rpc.generated import iris_pb2 as pb
from iris.sim.host import Process
from iris.sim.network import Network
from iris.sim.programs import PlannedJob
from iris.sim.world import Node
from rigging.errors import Conflict, InvalidRequest, MarinError, NotFound

_CALL_S = 15.0
_WAIT_S = 20.0


@dataclass
class Book:
    """The users' knowledge: plans by name, acknowledged and refused submissions.

    Attributes:
        acknowledged: Number of uses of each acknowledged job name. refused: Refused names with the message.
        ended: Results of waits. open_stories: Plans that have not finished.
    """

    acknowledged: dict[JobId, int] = field(default_factory=dict)
    refused: dict[JobId, str] = field(default_factory=dict)
    ended: dict[JobId, JobState] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    open_stories: int = 0


class SimCaller:
    """A caller with a token at one node of the network, which retries until it gets an answer."""

    def __init__(
        self, network: Network, node: Node, peer: str, token: str, source: random.Random, attempt: str
    ) -> None:
        self._network = network
        self._node = node
        self._peer = peer
        self._token = token
        self._source = source
        self._attempt = attempt

    async def call(self, method: str, request: Any, timeout_s: float = _CALL_S) -> Any:
        """Return the answer. Raises MarinError if the call is refused permanently."""
        while True:
            try:
                return await self._network.call(
                    self._node, self._peer, self._token, method, request, timeout_s, self._attempt
                )
            except MarinError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(self._source.uniform(0.1, 2))

    async def submit(self, plan: PlannedJob, key: str, policy: pb.ExistingJobPolicy.ValueType) -> None:
        spec = spec_to_wire(plan.spec)
        request = pb.SubmitJobRequest(spec=spec, idempotency_key=key, existing=policy)
        while True:
            try:
                await self.call("JobService/SubmitJob", request)
                return
            except InvalidRequest:
                if plan.is_refused:
                    raise
            except Conflict:
                if ":ok" not in request.spec.after or JobState.UNSCHEDULABLE not in plan.allowed:
                    raise
                request.spec.after = request.spec.after.replace(":ok", ":any")
                continue
            except NotFound:
                if not plan.spec.after:
                    raise
            # Judged by the workers of the moment; those that it needs will be back. A job that it waits for will come.
            await asyncio.sleep(2)

    async def wait(self, names: list[JobId]) -> list[JobState]:
        """Wait for the end of all these jobs."""
        request = pb.WaitJobsRequest(job_ids=names, timeout_ms=round(_WAIT_S * 1000))
        while True:
            answer = await self.call("JobService/WaitJobs", request, _WAIT_S + _CALL_S)
            if answer.done:
                return [JobState(status.state) for status in answer.jobs]


class Users:
    """Runs every plan in a separate simulated process.

    Args:
        book: Updated as answers come.
    """

    def __init__(self, network: Network, node: Node, secret: bytes, source: random.Random, book: Book) -> None:
        self._network = network
        self._node = node
        self._secret = secret
        self._source = source
        self._book = book

    def begin(self, plans: tuple[PlannedJob, ...]) -> None:
        for plan in plans:
            self._book.open_stories += 1
            self._node.run(self._node.create_task, self._tell(plan))

    async def _tell(self, plan: PlannedJob) -> None:
        await asyncio.sleep(plan.submit_s)
        name = plan.spec.job_id
        token = make_token(self._secret, PrincipalKind.USER, user_of(name))
        caller = SimCaller(self._network, self._node, "client", token, self._source, "")
        use = 1
        current: PlannedJob | None = plan
        replaces = False
        while current is not None:
            if not await self._run_one(caller, current, use, replaces):
                break
            replaces = current.replaces
            current, use = current.again, use + 1
        self._book.open_stories -= 1

    async def _run_one(self, caller: SimCaller, plan: PlannedJob, use: int, replaces: bool) -> bool:
        book, name = self._book, plan.spec.job_id
        policy = pb.EXISTING_JOB_POLICY_REPLACE if replaces else pb.EXISTING_JOB_POLICY_FAIL
        try:
            await caller.submit(plan, f"key of {name} {use}", policy)
        except InvalidRequest as error:
            book.refused[name] = str(error)
            return False
        except MarinError as error:
            book.violations.append(f"the submit of {name} failed: {error!r}")
            return False
        book.acknowledged[name] = use
        if plan.stop_s:
            await asyncio.sleep(max(plan.stop_s - self._node.time(), 0))
            if plan.replaces:
                return True
            await caller.call("JobService/StopJob", pb.StopJobRequest(job_id=name, reason="the user stopped it"))
            if plan.again is not None:
                return True
        (state,) = await caller.wait([name])
        book.ended[name] = state
        if state not in plan.allowed:
            words = " or ".join(sorted(allowed.word for allowed in plan.allowed))
            book.violations.append(f"{name} (use {use}) was told to have ended {state.word}; it must end {words}")
        return True


def run_children(network: Network, source: random.Random, book: Book, process: Process, node: Node, token: str) -> None:
    """Let a parent's process submit its children, wait for them, and end."""
    caller = SimCaller(network, node, process.host.name, token, source, process.attempt_id)
    node.run(node.create_task, _run_children(caller, process, book))


async def _run_children(caller: SimCaller, process: Process, book: Book) -> None:
    names = [plan.spec.job_id for plan in process.program.children]
    try:
        for plan in process.program.children:
            # Another attempt of the parent finds the children of the former one.
            await caller.submit(plan, f"child {plan.spec.job_id}", pb.EXISTING_JOB_POLICY_ADOPT)
            book.acknowledged[plan.spec.job_id] = 1
        process.running.has_lent = True
        states = await caller.wait(names)
        code = 0 if all(state is JobState.SUCCEEDED for state in states) else 3
    except MarinError:
        code = 4
    process.finish(code)
