"""Actors on Ray that a process owns directly, without the client's session."""

import threading
import uuid
from collections.abc import Mapping
from typing import Any

from fray.backends.ray.lookup import HOSTED_PREFIX, find_hosted
from fray.backends.ray.session import end_actors, host_class, keep_this_process


class HostedActors:
    """The actors that this process hosts for one client. Each has its own process, which ends with this one.

    Hosted actors need no session. Starting one takes a second or two of processor time.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._actors: dict[str, tuple[str, Any]] = {}
        self._ended: set[str] = set()

    def has(self, name: str) -> bool:
        """Return whether this or another process of this client hosts an actor of that name."""
        return bool(set(find_hosted(self._namespace, name)) - self._ended)

    def start(self, name: str, options: Mapping[str, Any], payload: bytes) -> str:
        """Start an actor and return its name in Ray. The caller ensures that `name` is free.

        Args:
            name: Its name in fray.
            options: Ray's actor options.
            payload: The pickled `ActorSpec`.
        """
        keep_this_process()
        ray_name = f"{HOSTED_PREFIX}/{uuid.uuid4().hex[:8]}/{name}"
        actor = host_class().options(name=ray_name, namespace=self._namespace, **options).remote(payload, ray_name)
        with self._lock:
            self._actors[name] = (ray_name, actor)
        return ray_name

    def end(self, name: str) -> bool:
        """Ask an actor to end, then kill it. Return whether the actor existed."""
        with self._lock:
            known = self._actors.pop(name, None)
            if known is None:
                return False
            # It may be up for another moment.
            self._ended.add(known[0])
        end_actors([known[1]])
        return True

    def close(self) -> None:
        """End all actors."""
        with self._lock:
            ended, self._actors = list(self._actors.values()), {}
            self._ended |= {ray_name for ray_name, _ in ended}
        end_actors([actor for _, actor in ended])
