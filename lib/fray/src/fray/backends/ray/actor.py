"""Actors on Ray: references to them, and groups of them."""

import contextlib
import itertools
import pickle
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import cloudpickle
import ray

from fray.actor import ActorFuture, ActorHandle
from fray.backends.common.actors import CallFuture, Ended, RefGroup, RefHandle, call_text, is_current_actor
from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray.payload import TaskResult
from fray.backends.ray.sending import sent_as_by_dumps
from fray.errors import ActorLost, JobFailed
from rigging.errors import Conflict, InvalidRequest
from rigging.process.callbacks import call_apart
from rigging.process.exception_parts import title_of

_PROBE_SECONDS = 5.0
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count()


def error_of(outcome: TaskResult, what: str) -> BaseException:
    """Return the exception of a method or constructor with its remote traceback; the original exception if it could be
    pickled.
    """
    error: BaseException | None = None
    if outcome.error is not None:
        with contextlib.suppress(Exception):
            # A user's exception may fail to be built here; its text remains.
            error = cloudpickle.loads(outcome.error)
    if not isinstance(error, BaseException):
        error = JobFailed(f"{what}: {outcome.summary}")
    error.add_note(f"Remote traceback of {what}:\n{outcome.trace}")
    return error


class RayActorFuture(CallFuture):
    """The future result of a call of an actor on Ray."""

    def __init__(self, actor: "RayActorRef", method: str, number: tuple[str, int], answer: Any) -> None:
        super().__init__(actor, method)
        self._actor = actor
        self._number = number
        # Ray itself tells of a refused call only when the actor comes to it.
        self._withdrawn: Future[None] = Future()
        self._answer = answer

    def result(self, timeout: float | None = None) -> Any:
        if self._cancelled:
            raise self._never_began()
        try:
            outcome, value = ray.get(self._answer, timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            raise self._late(timeout) from None
        except ray.exceptions.RayActorError as error:
            raise ActorLost(f"{self._what}: the actor is gone: {_one_line(error)}") from None
        except ray.exceptions.ObjectLostError as error:
            raise ActorLost(f"{self._what}: the result was lost: {_one_line(error)}") from None
        except ray.exceptions.RayTaskError as error:
            # What the method raised comes back as a value, so this is about the way there or back.
            reason = _one_line(error.cause or error)
            raise JobFailed(f"{self._what}: the arguments or the result cannot be sent: {reason}") from error
        if self._cancelled:
            raise self._never_began()
        if outcome is not None:
            raise error_of(outcome, self._what)
        return value

    def done(self) -> bool:
        if self._cancelled:
            return True
        ready, _ = ray.wait([self._answer], timeout=0)
        return bool(ready)

    def _take_back(self) -> bool:
        if self.done():
            return False
        try:
            ask = self._actor.actor(self._what).withdraw.options(concurrency_group="control")
            taken: bool = ray.get(ask.remote(self._number))
        except (ActorLost, ray.exceptions.RayError):  # its result will say that the actor is gone
            return False
        if taken and not self._withdrawn.done():
            self._withdrawn.set_result(None)
        return taken

    def add_done_callback(self, callback: Callable[[ActorFuture[Any]], object]) -> None:
        first = threading.Lock()

        def tell(_: object) -> None:
            if first.acquire(blocking=False):
                call_apart(lambda: callback(self))

        self._withdrawn.add_done_callback(tell)
        self._answer.future().add_done_callback(tell)


@dataclass(unsafe_hash=True)
class RayActorRef:
    """A reference to an actor on Ray by its Ray name, which any process of the cluster can look up.

    Calls from one process run in order. There is no order between the calls of two processes.

    Args:
        ray_name: Its name in Ray; empty in a group's shared reference.
        namespace: The Ray namespace of its client.
        group: The name of its group.
        index: Its index in the group.
        class_name: The name of its class.
        methods: The methods that can be called.
        serial: Whether the actor runs one call at a time.
    """

    ray_name: str
    namespace: str
    group: str
    index: int
    class_name: str
    methods: frozenset[str]
    serial: bool
    _actor: Any = field(default=None, init=False, compare=False, repr=False)

    @property
    def label(self) -> str:
        """A readable name of the actor."""
        return f"{self.group!r} [{self.index}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return RayActorRef, tuple(getattr(self, each.name) for each in fields(self) if each.init)

    def runs_here(self) -> bool:
        return self.serial and is_current_actor(self)

    def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RayActorFuture:
        """Send a call.

        Args:
            method: Name of a public method.
            args: Positional arguments.
            kwargs: Keyword arguments.

        Raises:
            ActorLost: The actor has ended for good.
            InvalidRequest: The arguments cannot be pickled.
        """
        what = call_text(self, method)
        ray_cluster.refuse_forks(what)
        try:
            with sent_as_by_dumps(args, kwargs):
                number = _PROCESS, next(_numbers)
                answer = self.actor(what).call.remote(method, args, kwargs, number)
        except (TypeError, pickle.PicklingError) as error:
            raise InvalidRequest(f"{what}: cannot pickle the arguments: {_one_line(error)}") from error
        return RayActorFuture(self, method, number, answer)

    def actor(self, what: str) -> Any:
        """Return Ray's own handle.

        Raises:
            ActorLost: The actor has ended for good. The message begins with `what`.
        """
        if self._actor is None:
            try:
                self._actor = ray.get_actor(self.ray_name, namespace=self.namespace)
            except ValueError:
                raise ActorLost(f"{what}: the actor has ended") from None
        return self._actor


class _Member:
    """One actor of a group, in its creator's process."""

    def __init__(self, handle: ActorHandle, actor: Any, started: Any) -> None:
        self.handle = handle
        self.actor = actor
        self.started = started
        self.constructed = False
        self.ended = False
        self.error: BaseException | None = None

    @classmethod
    def of(cls, ref: RayActorRef) -> "_Member":
        """Ask Ray for an actor, and for the result of its constructor."""
        actor = ref.actor("starting")
        return cls(RefHandle(ref), actor, actor.started.options(concurrency_group="control").remote())

    @property
    def starting(self) -> bool:
        """Whether the actor's constructor is still running."""
        return not self.constructed and not self.ended

    def settle(self) -> None:
        """Read the result of the finished constructor."""
        try:
            outcome = ray.get(self.started)
        except ray.exceptions.RayActorError as error:
            self.end(ActorLost(f"actor {self.handle!r} is gone: {_one_line(error)}"))
            return
        if outcome is None:
            self.constructed = True
        else:
            self.end(error_of(outcome, f"the constructor of {self.handle!r}"))

    def end(self, error: BaseException) -> None:
        """Mark the actor as ended. The first error is kept."""
        self.ended, self.error = True, self.error or error


class GroupOwner(Protocol):
    """The client that owns a group's actors."""

    def end_group(self, name: str) -> None:
        """End the actors of a group."""
        ...


class RayActorGroup(RefGroup):
    """Actors of one class on Ray. `ready_count` asks the actors themselves, so it costs a round trip."""

    def __init__(self, client: GroupOwner, name: str, members: Sequence[_Member]) -> None:
        super().__init__(name, len(members))
        self._client = client
        self._members = members

    @classmethod
    def of(cls, client: GroupOwner, name: str, refs: Iterable[RayActorRef]) -> "RayActorGroup":
        """Return the group of the started actors.

        Args:
            client: The client that ends them with the group.
            name: The group's name.
            refs: The actors, by index.
        """
        return cls(client, name, [_Member.of(ref) for ref in refs])

    def only_member(self) -> ActorHandle:
        (member,) = self._members
        ray.wait([member.started])
        member.settle()
        if member.error is not None:
            self.shutdown()
            raise member.error
        return member.handle

    def is_done(self) -> bool:
        self._ready()
        return all(member.ended for member in self._members)

    def shutdown(self) -> None:
        for member in self._members:
            if not member.ended:
                member.end(Conflict(f"actor {member.handle!r} was shut down"))
        self._client.end_group(self._name)

    def _ready(self) -> list[int]:
        known = set(self._look_at([member.started for member in self._members if member.starting], 0))
        for member in self._members:
            if member.started in known and not member.ended:
                member.settle()
        up = [member for member in self._members if member.constructed and not member.ended]
        pings = [member.actor.ping.options(concurrency_group="control").remote() for member in up]
        answered = set(self._look_at(pings, _PROBE_SECONDS))
        for member, ping in zip(up, pings, strict=True):
            if ping not in answered:
                # Too busy to say: up, as far as we know.
                continue
            try:
                ray.get(ping)
            except ray.exceptions.ActorDiedError as error:
                member.end(ActorLost(f"actor {member.handle!r} is gone: {_one_line(error)}"))
            except ray.exceptions.RayError:
                # Restarting: neither gone nor known to be ready to answer.
                continue
        return [index for index, member in enumerate(self._members) if member.constructed and not member.ended]

    @staticmethod
    def _look_at(answers: list[Any], seconds: float) -> list[Any]:
        return ray.wait(answers, num_returns=len(answers), timeout=seconds)[0] if answers else []

    def _handle(self, index: int) -> ActorHandle:
        return self._members[index].handle

    def _ended(self) -> Ended:
        ended = [member for member in self._members if member.ended]
        cause = next((member.error for member in ended if member.error is not None), None)
        return Ended(len(ended), title_of(cause) if cause is not None else "shut down", cause)

    def _wait_for(self, wanted: int, seconds: float) -> None:  # noqa: ARG002 - Ray tells of any one that is constructed
        starting = [member.started for member in self._members if member.starting]
        if starting:
            ray.wait(starting, num_returns=1, timeout=min(seconds, 1.0))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]
