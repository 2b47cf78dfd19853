"""How jobs travel to Ray's worker processes."""

import pickle
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import ray

from fray.backends import ray_worker
from fray.backends.ray_worker import Surface

_SIGHTINGS_REMEMBERED = 256
_EXPORT_AT_SIGHTING = 3
_LARGEST_EXPORT_BYTES = 16 << 10
_MOST_EXPORTED_BYTES = 16 << 20


class Cargo(NamedTuple):
    """What the replicas of a job bring along.

    Args:
        surface: What they find around them.
        payload: The pickled entry point, or a reference to it when it is large.
    """

    surface: Surface
    payload: Any

    def with_env(self, env: Mapping[str, str]) -> "Cargo":
        """The same with more variables."""
        return Cargo(self.surface._replace(late_env={**self.surface.late_env, **env}), self.payload)


class Shipping:
    """Starts the Ray tasks of a client.

    A task's argument costs Ray a fifth of a whole small task, mostly in the worker. What is sent again and again (a
    function and the same arguments) therefore becomes a Ray function of its own, which each worker process loads once,
    and what tells one job from the next travels in the task's name. Ray keeps such functions as long as the cluster
    keeps the driver's job, so their number is limited.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sightings: OrderedDict[bytes, int] = OrderedDict()
        self._exported: dict[bytes, Any] = {}
        self._exported_bytes = 0
        self._run: Any = ray.remote(max_retries=0)(ray_worker.run_job)
        # A process that holds a TPU lets go of it only by ending.
        self._run_once: Any = ray.remote(max_retries=0, max_calls=1)(ray_worker.run_job)

    def launch(self, cargo: Cargo, name: str, options: Mapping[str, Any]) -> Any:
        """Start a task named `name`, which is `ray_worker.task_name`'s; returns the reference to its outcome."""
        surface = tuple(cargo.surface)
        if not isinstance(cargo.payload, bytes):
            run = self._run_once if cargo.surface.uses_tpu else self._run
            return run.options(name=name, **options).remote(pickle.dumps((surface, None)), cargo.payload)
        request = pickle.dumps((surface, cargo.payload))
        if cargo.surface.uses_tpu:
            return self._run_once.options(name=name, **options).remote(request)
        own = self._function_of(request, cargo.surface, cargo.payload)
        if own is None:
            return self._run.options(name=name, **options).remote(request)
        return own.options(name=name, **options).remote()

    def _function_of(self, request: bytes, surface: Surface, payload: bytes) -> Any:
        """The Ray function that runs just this request; None while it is not worth one."""
        if len(request) > _LARGEST_EXPORT_BYTES:
            return None
        with self._lock:
            known = self._exported.get(request)
            if known is not None:
                return known
            count = self._sightings[request] = self._sightings.pop(request, 0) + 1
            if len(self._sightings) > _SIGHTINGS_REMEMBERED:
                self._sightings.popitem(last=False)
            if count < _EXPORT_AT_SIGHTING or self._exported_bytes + len(request) > _MOST_EXPORTED_BYTES:
                return None
            del self._sightings[request]
            self._exported_bytes += len(request)
            known = self._exported[request] = _function(surface, payload)
            return known


def _function(surface: Surface, payload: bytes) -> Any:
    def run_known_job() -> Any:
        return ray_worker.run_entry(surface, payload)

    return ray.remote(max_retries=0)(run_known_job)
