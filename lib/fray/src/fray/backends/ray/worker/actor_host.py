"""Fray actors inside Ray's actors."""

import os
import traceback
from dataclasses import replace
from typing import Any

import cloudpickle

from fray.actor import ActorContext, enter_actor
from fray.backends.common.actors import RefHandle
from fray.backends.ray.actor_spec import ActorSpec
from fray.backends.ray.payload import NAMESPACE_ENV, TaskResult
from fray.backends.ray.worker.entry import failure, nested_client
from fray.context import adopt_client
from rigging.calls import call_to_end


class ActorHost:
    """A Ray actor that holds a fray actor; errors come back as values."""

    def __init__(self, payload: bytes, ray_name: str) -> None:
        spec: ActorSpec = cloudpickle.loads(payload)
        request, ref = spec.request, replace(spec.ref, ray_name=ray_name)
        os.environ.update({**spec.late_env, NAMESPACE_ENV: ref.namespace, "RAY_ADDRESS": spec.address})
        self._context = ActorContext(RefHandle(ref), ref.index, ref.group)
        self._namespace = ref.namespace
        self._ray_name = ray_name
        self._instance: Any = None
        self._failure: TaskResult | None = None
        self._enter()
        try:
            self._instance = call_to_end(request.cls, *request.args, **request.kwargs)
        except BaseException as error:  # raised where the actor is waited for
            self._failure = failure(error)
            traceback.clear_frames(error.__traceback__)

    def ping(self) -> bool:
        """Answer."""
        return True

    def started(self) -> TaskResult | None:
        """The constructor's error; None when it succeeded."""
        return self._failure

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TaskResult | None, Any]:
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
