"""Fray actors inside Ray's actors."""

import os
import traceback
from typing import Any, NamedTuple

import cloudpickle

from fray.actor import ActorContext, enter_actor
from fray.backends.ray_actor import RayActorHandle
from fray.backends.ray_failures import Outcome
from fray.backends.ray_worker import NAMESPACE_ENV, failure, nested_client
from fray.context import adopt_client
from rigging.calls import call_to_end


class Birth(NamedTuple):
    """What an actor is made from."""

    cls: type[Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    namespace: str
    address: str
    group: str
    place: int
    max_concurrency: int
    methods: tuple[str, ...]
    late_env: dict[str, str]


class ActorHost:
    """A Ray actor that holds a fray actor; errors come back as values."""

    def __init__(self, payload: bytes, ray_name: str) -> None:
        birth: Birth = cloudpickle.loads(payload)
        os.environ.update({**birth.late_env, NAMESPACE_ENV: birth.namespace, "RAY_ADDRESS": birth.address})
        handle = RayActorHandle(ray_name, birth.namespace, birth.group, birth.place, birth.cls.__name__, birth.methods,
                                birth.max_concurrency)  # fmt: skip
        self._context = ActorContext(handle, birth.place, birth.group)
        self._namespace = birth.namespace
        self._ray_name = ray_name
        self._instance: Any = None
        self._failure: Outcome | None = None
        self._enter()
        try:
            self._instance = call_to_end(birth.cls, *birth.args, **birth.kwargs)
        except BaseException as error:  # belongs to whoever waits for the actor
            self._failure = failure(error)
            traceback.clear_frames(error.__traceback__)

    def ping(self) -> bool:
        """Answer."""
        return True

    def started(self) -> Outcome | None:
        """How the constructor failed; None when it did not."""
        return self._failure

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Outcome | None, Any]:
        """Call a method; returns what it raised or what it returned."""
        if self._failure is not None:
            return self._failure, None
        self._enter()
        try:
            return None, call_to_end(getattr(self._instance, method), *args, **kwargs)
        except BaseException as error:  # belongs to the caller
            return failure(error), None

    def _enter(self) -> None:
        enter_actor(self._context)
        adopt_client(nested_client(self._namespace, self._ray_name))
