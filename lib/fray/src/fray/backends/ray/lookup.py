"""Look up the actors of a client by their Ray names, from any process of the cluster."""

import contextlib
from typing import Any

import ray

MOST_BYTES_OF_A_REPLICA = 16 << 20
LOST = b"[output lost: the session that kept it has died]\n"

SESSION_NAME = "fray-session"
ACTOR_PREFIX = "fray-actor"
HOSTED_PREFIX = "fray-hosted"
_ALIVE_SECONDS = 5.0

Key = tuple[str, int, int]
"""Job id, attempt, replica."""


def is_alive(actor: Any) -> bool:
    """Return whether an actor is running, starting or restarting."""
    try:
        ray.get(actor.ping.options(concurrency_group="control").remote(), timeout=_ALIVE_SECONDS)
    except ray.exceptions.ActorDiedError:
        return False
    except ray.exceptions.RayError:
        return True
    return True


def find_hosted(namespace: str, name: str) -> list[str]:
    """Return the Ray names of this client's hosted actors of that name, in all processes (see `HostedActors`)."""
    found: list[str] = []
    for entry in ray.util.list_named_actors(all_namespaces=True):
        prefix, _, rest = entry["name"].partition("/")
        if entry["namespace"] != namespace or prefix != HOSTED_PREFIX or rest.partition("/")[2] != name:
            continue
        # It may end meanwhile.
        with contextlib.suppress(ValueError):
            if is_alive(ray.get_actor(entry["name"], namespace=namespace)):
                found.append(entry["name"])
    return found


def find_session(namespace: str) -> Any:
    """Return the session of a namespace, if there is one."""
    try:
        return ray.get_actor(SESSION_NAME, namespace=namespace)
    except ValueError:
        return None
