"""The one small Ray actor that a client has: where its jobs report, and the owner of its actors."""

import contextlib
import socket
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import ray

from fray.backends import ray_cluster
from fray.backends.ray_stopper import cancel_tasks

MOST_BYTES_OF_A_REPLICA = 16 << 20
LOST = b"[output lost: the session that kept it has died]\n"

SESSION_NAME = "fray-session"
ACTOR_PREFIX = "fray-actor"
HOSTED_PREFIX = "fray-hosted"
_PROBE_SECONDS = 2.0
_ALIVE_SECONDS = 5.0

Key = tuple[str, int, int]
"""Job id, attempt, replica."""


class Session:
    """What the processes of one client and its jobs know together. Lives as long as the process that started it.

    It keeps the last 16 MiB of what each replica of a running job wrote. Actors are its own, so that they outlive the
    job that made them, and end with the client, however that ends.
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
        """Answer."""
        return True

    def report(self, key: Key, chunk: bytes) -> None:
        """A replica runs, and wrote this since its last report."""
        self._attempts[key[0]] = key[1]
        output = self._output.setdefault(key, bytearray())
        output += chunk
        if len(output) > MOST_BYTES_OF_A_REPLICA:
            del output[: len(output) - MOST_BYTES_OF_A_REPLICA]

    def running(self, job_id: str, attempt: int) -> bool:
        """Whether a replica of this attempt has reported."""
        return self._attempts.get(job_id) == attempt

    def output(self, job_id: str, attempt: int) -> dict[int, bytes]:
        """What each replica of an attempt has written so far."""
        return {key[2]: bytes(text) for key, text in self._output.items() if key[:2] == (job_id, attempt)}

    def take(self, key: Key, reported: bool) -> bytes:
        """What a replica that has ended had reported; it is forgotten here.

        Args:
            key: The replica.
            reported: Whether it certainly had: then it was to another session if it was not to this one.
        """
        self._attempts.pop(key[0], None)
        output = self._output.pop(key, None)
        if output is None:
            return LOST if reported else b""
        return bytes(output)

    def cancel(self, refs: Sequence[Any], force: bool) -> None:
        """Have the owner of these tasks stop them (see `Stopper`)."""
        cancel_tasks(refs, force)

    def gone(self, node_ids: Sequence[str]) -> list[str]:
        """Which of these nodes are dead or do not answer."""
        nodes = {node["NodeID"]: node for node in ray_cluster.nodes()}
        return [node_id for node_id in node_ids if not _answers(nodes.get(node_id))]

    def create(self, name: str, options: Mapping[str, Any], payloads: Sequence[bytes]) -> list[str] | None:
        """Start the actors of a group and return their names in Ray; None when something that is up has the name."""
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
        """Whether no actor of that group is left."""
        return not any(_is_alive(actor) for actor in self._groups.get(name, ()))

    def kill(self, name: str) -> None:
        """Stop the actors of a group; its name is free."""
        for actor in self._groups.pop(name, ()):
            ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """Stop all actors."""
        for name in list(self._groups):
            self.kill(name)


# Ray takes each `ray.remote` of a class for another class, and ships it again.
@cache
def host_class() -> Any:
    """The Ray class of fray's actors."""
    from fray.backends.ray_host import ActorHost

    return ray.remote(concurrency_groups={"control": 1})(ActorHost)  # type: ignore[call-overload]


@cache
def _session_class() -> Any:
    return ray.remote(Session)


def _answers(node: Mapping[str, Any] | None) -> bool:
    if node is None or not node["Alive"]:
        return False
    try:
        address = (node["NodeManagerAddress"], node["NodeManagerPort"])
        with contextlib.closing(socket.create_connection(address, timeout=_PROBE_SECONDS)):
            return True
    except OSError:
        return False


def _is_alive(actor: Any) -> bool:
    """Whether an actor is up, starting or being restarted."""
    try:
        ray.get(actor.ping.options(concurrency_group="control").remote(), timeout=_ALIVE_SECONDS)
    except ray.exceptions.ActorDiedError:
        return False
    except ray.exceptions.RayError:
        return True
    return True


def find_hosted(namespace: str, name: str) -> list[str]:
    """The names in Ray of the actors of that name that processes of this client host (see `HostedActors`)."""
    found: list[str] = []
    for entry in ray.util.list_named_actors(all_namespaces=True):
        prefix, _, rest = entry["name"].partition("/")
        if entry["namespace"] != namespace or prefix != HOSTED_PREFIX or rest.partition("/")[2] != name:
            continue
        # It may end meanwhile.
        with contextlib.suppress(ValueError):
            if _is_alive(ray.get_actor(entry["name"], namespace=namespace)):
                found.append(entry["name"])
    return found


def find_session(namespace: str) -> Any:
    """The session of a namespace, if there is one."""
    try:
        return ray.get_actor(SESSION_NAME, namespace=namespace)
    except ValueError:
        return None


_pin: Any = None


def keep_this_process() -> None:
    """Keep Ray from ending this process as an idle worker, and with it the actors that it owns."""
    global _pin
    if _pin is None:
        # Those that own an object are not ended.
        _pin = ray.put(b"")


def start_session(namespace: str) -> Any:
    """Start the session of a namespace, or find it; one that a job started ends with that job's process."""
    keep_this_process()
    options: dict[str, Any] = {"num_cpus": 0, "name": SESSION_NAME, "namespace": namespace, "get_if_exists": True}
    # The head node is not preemptible.
    if "node:__internal_head__" in ray_cluster.resources():
        options["resources"] = {"node:__internal_head__": 0.001}
    return _session_class().options(**options).remote(namespace)
