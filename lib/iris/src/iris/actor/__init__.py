"""Actors: objects that answer calls from many processes, over gRPC.

Only calls of live objects belong here. The job determines which process runs an actor.
"""

from iris.actor.client.call import ActorCall
from iris.actor.client.client import ActorClient, ActorMethod
from iris.actor.client.follow import EndpointFollower
from iris.actor.client.keys import actor_key
from iris.actor.client.operations import OperationStatus
from iris.actor.client.pool import ActorPool
from iris.actor.client.resolvers import FixedResolver, ProxyResolver
from iris.actor.errors import ActorDied, ActorStopped, RemoteError, RemoteTraceback
from iris.actor.server.server import ActorServer
from iris.actor.transport.payload import by_cloudpickle

__all__ = [
    "ActorCall",
    "ActorClient",
    "ActorDied",
    "ActorMethod",
    "ActorPool",
    "ActorServer",
    "ActorStopped",
    "EndpointFollower",
    "FixedResolver",
    "OperationStatus",
    "ProxyResolver",
    "RemoteError",
    "RemoteTraceback",
    "actor_key",
    "by_cloudpickle",
]
