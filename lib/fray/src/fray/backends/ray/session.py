"""A small Ray actor per client. Jobs report to it, and it owns the client's actors."""

import contextlib
import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import ray

from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray.jobs.canceller import cancel_tasks
from fray.backends.ray.lookup import (
    ACTOR_PREFIX,
    LOST,
    MOST_BYTES_OF_A_REPLICA,
    SESSION_NAME,
    Key,
    find_hosted,
    is_alive,
)
from fray.backends.ray.worker.actor_host import END_GRACE_S, ActorHost

_PROBE_SECONDS = 2.0


class ClientSession:
    """State shared by a client's processes and jobs. It lives as long as the process that started it.

    It keeps the last 16 MiB of output of each replica of a running job. It owns the client's actors, so that they
    outlive the job that created them and end with the client, even if it is killed.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._output: dict[Key, bytearray] = {}
        self._attempts: dict[str, int] = {}
        self._groups: dict[str, list[Any]] = {}
        self._serial = 0
        # Handles find actors by name, and must not find those of the session before.
        self._own = uuid.uuid4().hex[:8]

    def ping(self) -> bool:
        """Return: the call shows that the actor is up."""
        return True

    def report(self, key: Key, chunk: bytes) -> None:
        """Record that a replica runs, and its output since its last report."""
        self._attempts[key[0]] = key[1]
        output = self._output.setdefault(key, bytearray())
        output += chunk
        if len(output) > MOST_BYTES_OF_A_REPLICA:
            del output[: len(output) - MOST_BYTES_OF_A_REPLICA]

    def running(self, job_id: str, attempt: int) -> bool:
        """Return whether a replica of this attempt has reported."""
        return self._attempts.get(job_id) == attempt

    def output(self, job_id: str, attempt: int) -> dict[int, bytes]:
        """Return the output of each replica of an attempt so far."""
        return {key[2]: bytes(text) for key, text in self._output.items() if key[:2] == (job_id, attempt)}

    def output_of(self, key: Key) -> bytes:
        """Return the output of one replica so far."""
        return bytes(self._output.get(key, b""))

    def take(self, key: Key, reported: bool) -> bytes:
        """Return and forget the reported output of an ended replica.

        Args:
            key: The replica.
            reported: Whether the replica certainly reported. If so, and this session has no output, another session has
                the output.
        """
        self._attempts.pop(key[0], None)
        output = self._output.pop(key, None)
        if output is None:
            return LOST if reported else b""
        return bytes(output)

    def cancel(self, refs: Sequence[Any], force: bool) -> None:
        """Make the owner of these tasks stop them (see `TaskCanceller`)."""
        cancel_tasks(refs, force)

    def gone(self, node_ids: Sequence[str]) -> list[str]:
        """Return the nodes among these that are dead or do not answer."""
        nodes = {node["NodeID"]: node for node in ray_cluster.nodes()}
        return [node_id for node_id in node_ids if not _answers(nodes.get(node_id))]

    def create(self, name: str, options: Mapping[str, Any], payloads: Sequence[bytes]) -> list[str] | None:
        """Create the actors of a group and return their names in Ray; None if a running actor has the name.

        Args:
            name: The group's name.
            options: Ray's actor options.
            payloads: The pickled `ActorSpec` of each.
        """
        if not self.ended(name) or find_hosted(self._namespace, name):
            return None
        self._serial += 1
        names = [f"{ACTOR_PREFIX}/{self._own}-{self._serial}/{name}/{index}" for index in range(len(payloads))]
        self._groups[name] = [
            host_class().options(name=ray_name, namespace=self._namespace, **options).remote(payload, ray_name)
            for ray_name, payload in zip(names, payloads, strict=True)
        ]
        return names

    def ended(self, name: str) -> bool:
        """Return whether all actors of that group have ended."""
        return not any(is_alive(actor) for actor in self._groups.get(name, ()))

    def kill(self, name: str) -> None:
        """Ask the actors of a group to end, then kill them. Their name is free immediately."""
        actors = self._groups.pop(name, [])
        if actors:
            # Others want answers meanwhile.
            threading.Thread(target=end_actors, args=(actors,), name=f"fray-end-{name}", daemon=True).start()

    def close(self) -> None:
        """End all actors, and return after their grace time."""
        actors = [actor for group in self._groups.values() for actor in group]
        self._groups.clear()
        end_actors(actors)


# Ray takes each `ray.remote` of a class for another class, and ships it again.
@cache
def host_class() -> Any:
    """Return the Ray class of fray's actors."""
    return ray.remote(concurrency_groups={"control": 1})(ActorHost)  # type: ignore[call-overload]


def end_actors(actors: Sequence[Any]) -> None:
    """Ask actors to end, let running calls finish within `END_GRACE_S`, then kill the rest.

    Args:
        actors: Ray's handles to `host_class`.
    """
    for actor in actors:
        actor.end.options(concurrency_group="control").remote()
    drained = [actor.drain.options(concurrency_group="control").remote() for actor in actors]
    if drained:
        ray.wait(drained, num_returns=len(drained), timeout=END_GRACE_S)
    for actor in actors:
        ray.kill(actor, no_restart=True)


@cache
def _session_class() -> Any:
    return ray.remote(ClientSession)


def _answers(node: Mapping[str, Any] | None) -> bool:
    if node is None or not node["Alive"]:
        return False
    try:
        address = (node["NodeManagerAddress"], node["NodeManagerPort"])
        with contextlib.closing(socket.create_connection(address, timeout=_PROBE_SECONDS)):
            return True
    except OSError:
        return False


_pin: Any = None


def keep_this_process() -> None:
    """Keep Ray from ending this process as an idle worker, which would end the actors it owns."""
    global _pin
    if _pin is None:
        # Those that own an object are not ended.
        _pin = ray.put(b"")


def start_session(namespace: str) -> Any:
    """Start or find the session of a namespace. A session that a job started ends with that job's process."""
    keep_this_process()
    options: dict[str, Any] = {"num_cpus": 0, "name": SESSION_NAME, "namespace": namespace, "get_if_exists": True}
    # The head node is not preemptible.
    if "node:__internal_head__" in ray_cluster.resources():
        options["resources"] = {"node:__internal_head__": 0.001}
    return _session_class().options(**options).remote(namespace)
