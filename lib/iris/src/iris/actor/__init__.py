"""Actors: objects in one process that answer calls from many, over gRPC."""

from iris.actor.client import ActorCall, ActorClient, ActorMethod
from iris.actor.errors import ActorDied, ActorStopped, RemoteError, RemoteTraceback
from iris.actor.follow import EndpointFollower
from iris.actor.keys import actor_key
from iris.actor.pool import ActorPool
from iris.actor.server import ActorServer

__all__ = [
    "ActorCall",
    "ActorClient",
    "ActorDied",
    "ActorMethod",
    "ActorPool",
    "ActorServer",
    "ActorStopped",
    "EndpointFollower",
    "RemoteError",
    "RemoteTraceback",
    "actor_key",
]
