"""Start the Ray tasks of jobs."""

import pickle
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import ray

from fray.backends.ray.payload import TaskPayload
from fray.backends.ray.worker import entry

_SIGHTINGS_REMEMBERED = 256
_EXPORT_AT_SIGHTING = 3
_LARGEST_EXPORT_BYTES = 16 << 10
_MOST_EXPORTED_BYTES = 16 << 20


class TaskLauncher:
    """Starts the Ray tasks of a client.

    A payload that is sent repeatedly (a function with the same arguments) becomes a separate Ray function, which each
    worker process loads once. Ray keeps these functions as long as the driver's job, so their number is limited. Their
    tasks have no argument; the task's name identifies the job. An argument would cost another tenth of an empty task's
    0.84 ms of processor time, owner and worker together (Ray 2.60).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sightings: OrderedDict[bytes, int] = OrderedDict()
        self._exported: dict[bytes, Any] = {}
        self._exported_bytes = 0
        self._run: Any = ray.remote(max_retries=0)(entry.run_job)
        # A process that holds a TPU lets go of it only by ending.
        self._run_once: Any = ray.remote(max_retries=0, max_calls=1)(entry.run_job)

    def launch(self, payload: TaskPayload, name: str, options: Mapping[str, Any]) -> Any:
        """Start a task with a `name` from `task_name`, and return the reference to its `TaskResult`.

        Args:
            payload: The payload of the task.
            name: Identifies the job, attempt and replica.
            options: Ray's task options.
        """
        fields = tuple(payload.environment)
        if not isinstance(payload.entry, bytes):
            run = self._run_once if payload.environment.uses_tpu else self._run
            return run.options(name=name, **options).remote(pickle.dumps((fields, None)), payload.entry)
        request = pickle.dumps((fields, payload.entry))
        if payload.environment.uses_tpu:
            return self._run_once.options(name=name, **options).remote(request)
        own = self._function_of(request, payload)
        if own is None:
            return self._run.options(name=name, **options).remote(request)
        return own.options(name=name, **options).remote()

    def _function_of(self, request: bytes, payload: TaskPayload) -> Any:
        """Return the Ray function for exactly this request; None until it is repeated often enough."""
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
            known = self._exported[request] = _function(payload)
            return known


def _function(payload: TaskPayload) -> Any:
    environment, pickled = payload

    def run_known_job() -> Any:
        return entry.run_entry(environment, pickled)

    return ray.remote(max_retries=0)(run_known_job)
