"""The queue as an actor that workers can reach from anywhere."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from fray import Client
from fray.actor import ActorFuture, ActorHandle, typed_method
from fray.errors import ActorLost
from marin.run.mapping.state import Assignment, EndedWorker, FileQueue, FileReport, FileTask, QueueRules, QueueUpdate

T = TypeVar("T")

_CLOSED = Assignment(stop=True)


class QueueActor:
    """Queues by name. Calls are served one after another."""

    def __init__(self) -> None:
        self._queues: dict[str, FileQueue] = {}

    def open(self, name: str, rules: QueueRules) -> None:
        """Open a queue."""
        self._queues[name] = FileQueue(rules)

    def close(self, name: str) -> tuple[str, ...]:
        """Close a queue and stop its workers. Return the workers that have asked for work."""
        queue = self._queues.pop(name, None)
        return () if queue is None else queue.workers

    def exchange(self, name: str, worker: str, life: str, reports: Sequence[FileReport], seconds: float) -> Assignment:
        """Call `FileQueue.exchange` of the queue `name`, with the same arguments."""
        queue = self._queues.get(name)
        return _CLOSED if queue is None else queue.exchange(worker, life, reports, seconds)

    def sync(
        self, name: str, tasks: Sequence[FileTask], exhausted: bool, ended: Sequence[EndedWorker]
    ) -> QueueUpdate | None:
        """Call `FileQueue.sync` of the queue `name`; return None if a restarted actor has no such queue."""
        queue = self._queues.get(name)
        return None if queue is None else queue.sync(tasks, exhausted, ended)


class HostedQueue:
    """A queue in this process if the backend supports that, else in a small separate process.

    Raises:
        ActorLost: (all methods but `close`) The process is gone, and the queue's state with it.
    """

    def __init__(self, client: Client, name: str, rules: QueueRules) -> None:
        self.name = name
        self._client = client
        self.handle = _shared_host(client, name)
        self._ask(typed_method(self.handle, QueueActor.open).remote(name, rules))

    def sync(self, tasks: Sequence[FileTask], exhausted: bool, ended: Sequence[EndedWorker]) -> QueueUpdate:
        """Call `FileQueue.sync`, with the same arguments."""
        update = self._ask(typed_method(self.handle, QueueActor.sync).remote(self.name, tasks, exhausted, ended))
        if update is None:
            raise ActorLost(f"the queue {self.name} is gone: its process was restarted")
        return update

    def close(self) -> frozenset[str]:
        """Close the queue; workers end when they ask for more. Return all workers that have asked for files."""
        try:
            return frozenset(self._ask(typed_method(self.handle, QueueActor.close).remote(self.name)))
        except ActorLost:
            return frozenset()

    def _ask(self, future: ActorFuture[T]) -> T:
        try:
            return future.result()
        except ActorLost:
            _forget_host(self._client, self.handle)
            raise


# Starting a process takes longer than a thousand small files do.
_hosts: WeakKeyDictionary[Client, ActorHandle] = WeakKeyDictionary()
_hosts_lock = threading.Lock()


def _shared_host(client: Client, name: str) -> ActorHandle:
    with _hosts_lock:
        known = _hosts.get(client)
        if known is None:
            known = _hosts[client] = client.host_actor(QueueActor, name=name)
        return known


def _forget_host(client: Client, handle: ActorHandle) -> None:
    with _hosts_lock:
        if _hosts.get(client) is handle:
            del _hosts[client]
