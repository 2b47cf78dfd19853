"""The specification of an actor on Ray, sent from its creator to its process."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fray.backends.common.actors import ActorRequest, public_methods
from fray.backends.ray.actor import RayActorRef
from fray.backends.ray.sending import dumps
from rigging.filesystem.budget import budget_environment


class ActorSpec(NamedTuple):
    """Everything needed to create an actor.

    Args:
        request: The request for its group.
        ref: Its reference, without its name in Ray.
        address: The cluster's address.
        late_env: Variables to set before it is constructed.
    """

    request: ActorRequest
    ref: RayActorRef
    address: str
    late_env: Mapping[str, str]


def ref_of(request: ActorRequest, namespace: str) -> RayActorRef:
    """Return the reference that all actors of a group share.

    Args:
        request: The group.
        namespace: The Ray namespace of its client.
    """
    cls = request.cls
    serial = request.config.max_concurrency == 1
    return RayActorRef("", namespace, request.name, 0, cls.__name__, public_methods(cls), serial)


def payloads(request: ActorRequest, ref: RayActorRef, address: str) -> list[bytes]:
    """Return the pickled `ActorSpec` of each actor.

    Args:
        request: The group.
        ref: The reference that its actors share.
        address: The cluster's address.

    Raises:
        InvalidRequest: The actors cannot be pickled.
    """
    env = budget_environment()
    specs = (ActorSpec(request, replace(ref, index=index), address, env) for index in range(request.count))
    return [dumps(spec, f"actor {request.name!r}") for spec in specs]
