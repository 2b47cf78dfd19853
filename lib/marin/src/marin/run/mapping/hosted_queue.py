"""The queue as an actor, which workers reach from wherever they run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from fray import ActorGroup, Client
from fray.actor import ActorHandle, typed_method
from fray.errors import ActorLost
from marin.run.mapping.state import Assignment, EndedWorker, FileQueue, FileReport, FileTask, QueueRules, QueueUpdate

_START_SECONDS = 300.0
_CLOSED = Assignment(stop=True)


class QueueActor:
    """Queues by name; calls are served one after the other."""

    def __init__(self) -> None:
        self._queues: dict[str, FileQueue] = {}

    def open(self, name: str, rules: QueueRules) -> None:
        """Begin a queue."""
        self._queues[name] = FileQueue(rules)

    def close(self, name: str) -> None:
        """End a queue: its workers are told to stop."""
        self._queues.pop(name, None)

    def exchange(self, name: str, worker: str, life: str, reports: Sequence[FileReport], seconds: float) -> Assignment:
        """See `FileQueue.exchange`."""
        queue = self._queues.get(name)
        return _CLOSED if queue is None else queue.exchange(worker, life, reports, seconds)

    def sync(
        self, name: str, tasks: Sequence[FileTask], exhausted: bool, ended: Sequence[EndedWorker]
    ) -> QueueUpdate | None:
        """See `FileQueue.sync`; None: there is no such queue, as the actor was started again."""
        queue = self._queues.get(name)
        return None if queue is None else queue.sync(tasks, exhausted, ended)


class HostedQueue:
    """A queue in this process where the backend can have it there, else in a small process of the client's.

    Raises:
        ActorLost: (all methods but `close`) That process is gone, and what the queue knew.
    """

    def __init__(self, client: Client, name: str, rules: QueueRules) -> None:
        self.name = name
        self._client = client
        if client.capabilities.hosted_in_process:
            self.handle: ActorHandle = client.host_actor(QueueActor, name=name)
        else:
            self.handle = _shared_host(client, name)
        try:
            typed_method(self.handle, QueueActor.open)(name, rules)
        except ActorLost:
            _forget_host(client, self.handle)
            raise

    def sync(self, tasks: Sequence[FileTask], exhausted: bool, ended: Sequence[EndedWorker]) -> QueueUpdate:
        """See `FileQueue.sync`."""
        try:
            update = typed_method(self.handle, QueueActor.sync)(self.name, tasks, exhausted, ended)
        except ActorLost:
            _forget_host(self._client, self.handle)
            raise
        if update is None:
            raise ActorLost(f"the queue {self.name} is gone: its process was started again")
        return update

    def close(self) -> None:
        """End it; workers that ask for more end, too."""
        try:
            typed_method(self.handle, QueueActor.close)(self.name)
        except ActorLost:
            _forget_host(self._client, self.handle)


# Starting a process takes longer than a thousand small files do.
_hosts: WeakKeyDictionary[Client, tuple[ActorGroup, ActorHandle]] = WeakKeyDictionary()
_hosts_lock = threading.Lock()


def _shared_host(client: Client, name: str) -> ActorHandle:
    with _hosts_lock:
        known = _hosts.get(client)
        if known is None:
            group = client.create_actor_group(QueueActor, name=name, count=1)
            (handle,) = group.wait_ready(timeout=_START_SECONDS)
            known = _hosts[client] = (group, handle)
        return known[1]


def _forget_host(client: Client, handle: ActorHandle) -> None:
    with _hosts_lock:
        known = _hosts.get(client)
        if known is not None and known[1] is handle:
            del _hosts[client]
            known[0].shutdown()
