"""The actors of one client on Ray: some owned by its session, some by this process."""

import contextlib
from dataclasses import replace

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fray.backends.common.actors import ActorRequest
from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray.actor import RayActorGroup
from fray.backends.ray.actor_spec import payloads, ref_of
from fray.backends.ray.hosted import HostedActors
from fray.backends.ray.resources import actor_options
from fray.backends.ray.session_link import SessionLink
from fray.errors import JobAlreadyExists

_SESSION_SECONDS = 120.0


class RayActors:
    """Start and end actors.

    Args:
        namespace: The Ray namespace of the client.
        address: The cluster's address.
        sessions: The link to the client's session.
    """

    def __init__(self, namespace: str, address: str, sessions: SessionLink) -> None:
        self._namespace = namespace
        self._address = address
        self._sessions = sessions
        self._hosted = HostedActors(namespace)
        self._closed = False
        self.groups: set[str] = set()

    def host(self, request: ActorRequest) -> RayActorGroup:
        """Start an actor in a separate process on this node, without reserving CPUs.

        The actor ends with this process or with the client. From outside of the cluster (`ray://`) it runs on any node.

        Raises:
            JobAlreadyExists: The name is taken.
        """
        name = request.name
        options = actor_options(None, request.config)
        if not ray_cluster.is_remote():
            node = ray.get_runtime_context().get_node_id()
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        ref = ref_of(request, self._namespace)
        (payload,) = payloads(request, ref, self._address)
        if self._hosted.has(name) or not self._is_free(name):
            raise _taken(name)
        ray_name = self._hosted.start(name, options, payload)
        return RayActorGroup.of(self, name, [replace(ref, ray_name=ray_name)])

    def start(self, request: ActorRequest) -> RayActorGroup:
        """Start actors, each placed independently. Without `resources` they reserve no CPU.

        Actors end with their client, even if a job created them.

        Raises:
            JobAlreadyExists: The name is taken.
        """
        name = request.name
        ref, options = ref_of(request, self._namespace), actor_options(request.resources, request.config)
        pickled = payloads(request, ref, self._address)
        names = self._sessions.ask(lambda session: session.create.remote(name, options, pickled), _SESSION_SECONDS)
        if names is None:
            raise _taken(name)
        self.groups.add(name)
        return RayActorGroup.of(self, name, (replace(ref, ray_name=each, index=n) for n, each in enumerate(names)))

    def end_group(self, name: str) -> None:
        """End the actors of a group. Called by groups."""
        self.groups.discard(name)
        if self._closed or not ray.is_initialized() or self._hosted.end(name):
            return
        with contextlib.suppress(ray.exceptions.RayError):
            self._sessions.ask(lambda session: session.kill.remote(name), _SESSION_SECONDS)

    def close(self) -> None:
        """End the actors of this process. The end of the session ends the others."""
        self._closed = True
        self._hosted.close()

    def _is_free(self, name: str) -> bool:
        """Return whether no actor of the session has that name."""
        if self._sessions.known() is None:
            return True
        return bool(self._sessions.ask(lambda session: session.ended.remote(name), _SESSION_SECONDS))


def _taken(name: str) -> JobAlreadyExists:
    return JobAlreadyExists(f"actor {name!r} exists; choose another name or shut it down first", job_name=name)
