"""Handles of actors on Ray, and groups of them."""

import contextlib
import pickle
import time
from collections.abc import Sequence
from typing import Any, Protocol

import cloudpickle
import ray

from fray.actor import ActorHandle, find_actor
from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray.payload import TaskResult
from fray.errors import ActorLost, JobFailed
from fray.remote_errors import title_of
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest

_PROBE_SECONDS = 5.0


def error_of(outcome: TaskResult, what: str) -> BaseException:
    """Return the exception of a method or constructor, itself where it could travel, with its remote traceback."""
    error: BaseException | None = None
    if outcome.error is not None:
        with contextlib.suppress(Exception):
            # A user's exception may fail to be built here; its text remains.
            error = cloudpickle.loads(outcome.error)
    if not isinstance(error, BaseException):
        error = JobFailed(f"{what}: {outcome.summary}")
    error.add_note(f"Remote traceback of {what}:\n{outcome.trace}")
    return error


class RayActorFuture:
    """The result of a call of an actor on Ray."""

    def __init__(self, what: str, ref: Any) -> None:
        self._what = what
        self._ref = ref

    def result(self, timeout: float | None = None) -> Any:
        try:
            outcome, value = ray.get(self._ref, timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            raise DeadlineExceeded(f"{self._what}: no result after {timeout} s") from None
        except ray.exceptions.RayActorError as error:
            raise ActorLost(f"{self._what}: the actor is gone: {_one_line(error)}") from None
        except ray.exceptions.ObjectLostError as error:
            raise ActorLost(f"{self._what}: the result was lost: {_one_line(error)}") from None
        except ray.exceptions.RayTaskError as error:
            # What the method raised comes back as a value, so this is about the way there or back.
            reason = _one_line(error.cause or error)
            raise JobFailed(f"{self._what}: the arguments or the result cannot be sent: {reason}") from error
        if outcome is not None:
            raise error_of(outcome, self._what)
        return value

    def done(self) -> bool:
        ready, _ = ray.wait([self._ref], timeout=0)
        return bool(ready)


class RayActorMethod:
    """One method of an actor on Ray."""

    def __init__(self, handle: "RayActorHandle", name: str) -> None:
        self._handle = handle
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _refuse_waiting_for_itself(self._handle, self._name)
        return self.remote(*args, **kwargs).result()

    def remote(self, *args: Any, **kwargs: Any) -> RayActorFuture:
        return _call(self._handle, self._name, args, kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> RayActorFuture:
        return _call(self._handle, self._name, args, kwargs)


class RayActorHandle:
    """An actor on Ray; its public methods are attributes. It travels as a name, which any process of the cluster finds.

    Calls of one handle are made in order; the calls of two processes are not ordered among each other. What this module
    does with a handle are functions below: each public name is the actor's.
    """

    def __init__(
        self, ray_name: str, namespace: str, group: str, index: int, cls: str, methods: Sequence[str], concurrency: int
    ) -> None:
        self._identity = (ray_name, namespace, group, index, cls, tuple(methods), concurrency)
        self._label = f"{group!r} [{index}]"
        self._methods = frozenset(methods)
        self._actor: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RayActorHandle, self._identity

    def __repr__(self) -> str:
        return f"<actor {self._label}>"

    def __getattr__(self, name: str) -> RayActorMethod:
        if name.startswith("_"):
            raise AttributeError(f"actor {self._label}: {name!r} is not public, so it cannot be called")
        if name not in self._methods:
            raise AttributeError(f"actor {self._label}: {self._identity[4]} has no method {name!r}")
        return RayActorMethod(self, name)


def _call(handle: RayActorHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RayActorFuture:
    """Send a call."""
    what = f"{method!r} of actor {handle._label}"
    ray_cluster.refuse_forks(what)
    try:
        ref = _ray_actor(handle, what).call.remote(method, args, kwargs)
    except (TypeError, pickle.PicklingError) as error:
        raise InvalidRequest(f"{what}: cannot pickle the arguments: {_one_line(error)}") from error
    return RayActorFuture(what, ref)


def _ray_actor(handle: RayActorHandle, what: str) -> Any:
    """Ray's own handle.

    Raises:
        ActorLost: It has ended for good; the message begins with `what`.
    """
    if handle._actor is None:
        try:
            handle._actor = ray.get_actor(handle._identity[0], namespace=handle._identity[1])
        except ValueError:
            raise ActorLost(f"{what}: the actor has ended") from None
    return handle._actor


def _refuse_waiting_for_itself(handle: RayActorHandle, method: str) -> None:
    """Raise Conflict when the calling actor is the one that would have to serve the call."""
    own = find_actor()
    here = None if own is None else own.handle
    if isinstance(here, RayActorHandle) and here._identity == handle._identity and handle._identity[6] == 1:
        raise Conflict(
            f"actor {handle._label} would wait for itself: {method!r} can run only after the current method; "
            f"use .remote() without waiting, or ActorConfig(max_concurrency=2)"
        )


class _Member:
    """One actor of a group, as seen by who made it."""

    def __init__(self, handle: RayActorHandle) -> None:
        self.handle = handle
        self.actor = _ray_actor(handle, "starting")
        self.started = self.actor.started.options(concurrency_group="control").remote()
        self.constructed = False
        self.ended = False
        self.error: BaseException | None = None
        self.discovered = False

    def settle(self) -> None:
        """Look at how the constructor ended; it has."""
        try:
            outcome = ray.get(self.started)
        except ray.exceptions.RayActorError as error:
            self.ended, self.error = True, ActorLost(f"actor {self.handle!r} is gone: {_one_line(error)}")
            return
        if outcome is None:
            self.constructed = True
        else:
            self.ended, self.error = True, error_of(outcome, f"the constructor of {self.handle!r}")


class GroupOwner(Protocol):
    """The client whose actors a group is of."""

    def end_group(self, name: str) -> None:
        """End the actors of a group."""
        ...


class RayActorGroup:
    """Actors of one class on Ray. Which are still up is asked of them, so `ready_count` costs a round trip."""

    def __init__(self, client: GroupOwner, name: str, handles: Sequence[RayActorHandle]) -> None:
        self._client = client
        self._name = name
        self._members = [_Member(handle) for handle in handles]

    @property
    def ready_count(self) -> int:
        return len(self._ready())

    def only_member(self) -> RayActorHandle:
        """The handle of a group of one, once it is constructed; raises what its constructor raised."""
        (member,) = self._members
        ray.wait([member.started])
        member.settle()
        if member.error is not None:
            self.shutdown()
            raise member.error
        return member.handle

    def wait_ready(self, count: int | None = None, timeout: float = 300.0) -> list[ActorHandle]:
        """Wait for `count` ready actors (see `ActorGroup.wait_ready`)."""
        wanted = len(self._members) if count is None else count
        if not 0 <= wanted <= len(self._members):
            raise InvalidRequest(f"actor group {self._name!r} has {len(self._members)} actors, not {wanted}")
        deadline = time.monotonic() + timeout
        while True:
            ready = self._ready()
            if len(ready) >= wanted:
                return [member.handle for member in ready]
            self._raise_if_out_of_reach(wanted)
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"actor group {self._name!r}: {len(ready)} of {wanted} actors ready after {timeout} s"
                )
            starting = [member.started for member in self._members if not member.constructed and not member.ended]
            if starting:
                ray.wait(starting, num_returns=1, timeout=min(left, 1.0))

    def discover_new(self) -> list[ActorHandle]:
        new = [member for member in self._ready() if not member.discovered]
        for member in new:
            member.discovered = True
        return [member.handle for member in new]

    def is_done(self) -> bool:
        self._ready()
        return all(member.ended for member in self._members)

    def shutdown(self) -> None:
        for member in self._members:
            if not member.ended:
                member.ended = True
                member.error = member.error or Conflict(f"actor {member.handle!r} was shut down")
        self._client.end_group(self._name)

    def _ready(self) -> list[_Member]:
        starting = [member.started for member in self._members if not member.constructed and not member.ended]
        known = set(ray.wait(starting, num_returns=len(starting), timeout=0)[0]) if starting else set()
        for member in self._members:
            if member.started in known and not member.ended:
                member.settle()
        up = [member for member in self._members if member.constructed and not member.ended]
        pings = [member.actor.ping.options(concurrency_group="control").remote() for member in up]
        answered = set(ray.wait(pings, num_returns=len(pings), timeout=_PROBE_SECONDS)[0]) if pings else set()
        for member, ping in zip(up, pings, strict=True):
            if ping not in answered:
                # Too busy to say: up, as far as we know.
                continue
            try:
                ray.get(ping)
            except ray.exceptions.ActorDiedError as error:
                member.ended, member.error = True, ActorLost(f"actor {member.handle!r} is gone: {_one_line(error)}")
            except ray.exceptions.RayError:
                # Restarting: neither gone nor known to be ready to answer.
                continue
        return [member for member in up if not member.ended]

    def _raise_if_out_of_reach(self, wanted: int) -> None:
        ended = [member for member in self._members if member.ended]
        if len(self._members) - len(ended) >= wanted:
            return
        cause = next((member.error for member in ended if member.error is not None), None)
        reason = title_of(cause) if cause is not None else "shut down"
        raise JobFailed(
            f"actor group {self._name!r}: {len(ended)} of {len(self._members)} actors ended, so {wanted} cannot become "
            f"ready: {reason}"
        ) from cause


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]
