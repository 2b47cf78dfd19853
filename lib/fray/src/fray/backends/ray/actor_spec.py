"""The description of actors on Ray, which travels from their maker to their processes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fray.backends.common.actors import ActorRequest, public_methods
from fray.backends.ray.actor import RayActorRef
from fray.backends.ray.sending import dumps
from rigging.filesystem.budget import budget_environment


class ActorSpec(NamedTuple):
    """Everything that an actor is made from.

    Args:
        request: Of its group.
        ref: Its own, but for its name in Ray.
        address: Of the cluster.
        late_env: Variables that are set before it is made.
    """

    request: ActorRequest
    ref: RayActorRef
    address: str
    late_env: Mapping[str, str]


def ref_of(request: ActorRequest, namespace: str) -> RayActorRef:
    """The reference that the actors of a group have in common.

    Args:
        request: The group.
        namespace: Ray namespace of its client.
    """
    cls = request.cls
    serial = request.config.max_concurrency == 1
    return RayActorRef("", namespace, request.name, 0, cls.__name__, public_methods(cls), serial)


def payloads(request: ActorRequest, ref: RayActorRef, address: str) -> list[bytes]:
    """The pickled `ActorSpec` of each actor.

    Args:
        request: The group.
        ref: The reference that its actors have in common.
        address: Of the cluster.

    Raises:
        InvalidRequest: They cannot be pickled.
    """
    env = budget_environment()
    specs = (ActorSpec(request, replace(ref, index=index), address, env) for index in range(request.count))
    return [dumps(spec, f"actor {request.name!r}") for spec in specs]
