"""Fray actors inside Ray's actors."""

import contextlib
import os
import signal
import threading
import traceback
from dataclasses import replace
from types import FrameType
from typing import Any, Final

import cloudpickle
import ray

from fray.actor import ActorContext, ShutdownEvent, enter_actor
from fray.backends.common.actors import RefHandle
from fray.backends.ray.actor_spec import ActorSpec
from fray.backends.ray.payload import NAMESPACE_ENV, TaskResult
from fray.backends.ray.worker.entry import failure, nested_client
from fray.context import adopt_client
from rigging.errors import Conflict
from rigging.process.calls import call_to_end

END_GRACE_S: Final = 4.0
"""Seconds for the running calls of an ending actor."""

CallNumber = tuple[str, int]
"""The process that made a call, and the number of calls that it made before."""


class ActorHost:
    """A Ray actor that contains a fray actor. Errors are returned as values.

    Before ending it, callers call `end` and wait for `drain`. When the owner's process is gone, Ray sends at most
    SIGTERM, and SIGKILL a few milliseconds later.
    """

    def __init__(self, payload: bytes, ray_name: str) -> None:
        spec: ActorSpec = cloudpickle.loads(payload)
        request, ref = spec.request, replace(spec.ref, ray_name=ray_name)
        os.environ.update({**spec.late_env, NAMESPACE_ENV: ref.namespace, "RAY_ADDRESS": spec.address})
        self._shutdown_event = ShutdownEvent(self._begin_own_end)
        self._context = ActorContext(RefHandle(ref), ref.index, ref.group, self._shutdown_event)
        self._calls_changed = threading.Condition()
        self._calls = 0
        self._begun: dict[str, int] = {}
        self._withdrawn: set[CallNumber] = set()
        self._ends_by_itself = True
        self._namespace = ref.namespace
        self._ray_name = ray_name
        self._instance: Any = None
        self._failure: TaskResult | None = None
        self._listen_for_sigterm()
        self._enter()
        try:
            self._instance = call_to_end(request.cls, *request.args, **request.kwargs)
        except BaseException as error:  # raised where the actor is waited for
            self._failure = failure(error)
            traceback.clear_frames(error.__traceback__)

    def ping(self) -> bool:
        """Return: the call shows that the actor is up."""
        return True

    def started(self) -> TaskResult | None:
        """Return the constructor's error; None if it succeeded."""
        return self._failure

    def end(self) -> None:
        """Set the actor's `shutdown_event`, and refuse calls that have not begun."""
        self._ends_by_itself = False
        self._shutdown_event.set()

    def drain(self) -> None:
        """Wait until no call is running, at most `END_GRACE_S`."""
        with self._calls_changed:
            self._calls_changed.wait_for(lambda: self._calls == 0, END_GRACE_S)

    def withdraw(self, number: CallNumber) -> bool:
        """Refuse a call and return True, unless it or a later call of its process has begun."""
        with self._calls_changed:
            if number[1] <= self._begun.get(number[0], -1):
                return False
            self._withdrawn.add(number)
            return True

    def call(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], number: CallNumber
    ) -> tuple[TaskResult | None, Any]:
        """Call a method and return its result or its error.

        Args:
            method: Name of a public method.
            args: Positional arguments.
            kwargs: Keyword arguments.
            number: Its number, for `withdraw`.
        """
        with self._calls_changed:
            if number in self._withdrawn:
                self._withdrawn.remove(number)
                return failure(Conflict(f"{method!r} of {self._context.handle!r} was cancelled")), None
            self._begun[number[0]] = max(number[1], self._begun.get(number[0], -1))
        if self._failure is not None:
            return self._failure, None
        if self._shutdown_event.is_set():
            return failure(Conflict(f"{self._context.handle!r} was shut down: it cannot run {method!r}")), None
        self._enter()
        self._count(1)
        try:
            return None, call_to_end(getattr(self._instance, method), *args, **kwargs)
        except BaseException as error:  # belongs to the caller
            return failure(error), None
        finally:
            self._count(-1)

    def _enter(self) -> None:
        enter_actor(self._context)
        adopt_client(nested_client(self._namespace, self._ray_name))

    def _count(self, change: int) -> None:
        with self._calls_changed:
            self._calls += change
            self._calls_changed.notify_all()

    def _begin_own_end(self) -> None:
        """Start the actor's end after it set its own event, unless its end has already begun."""
        if self._ends_by_itself:
            threading.Thread(target=self._end_itself, name="fray-actor-end", daemon=True).start()

    def _end_itself(self) -> None:
        self.drain()
        # Ray would take any other end of the process for a crash, and start the actor again.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    def _listen_for_sigterm(self) -> None:
        before = signal.getsignal(signal.SIGTERM)

        def told(number: int, frame: FrameType | None) -> None:
            self.end()
            if callable(before):
                before(number, frame)

        # Ray makes an actor in its process's main thread, but does not promise that.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, told)
