"""The key with which actors and callers of one user authenticate each other."""

import threading
import weakref
from collections.abc import Callable
from typing import Final

from iris.actor.client.resolvers import machine_key
from iris.client.client import IrisClient
from iris.client.connection.connection import Connection
from iris.client.context import get_iris_ctx
from iris.rpc.generated import endpoints_pb2 as pb

_lock: Final = threading.Lock()
_known: "Final[weakref.WeakKeyDictionary[Connection, dict[str, bytes]]]" = weakref.WeakKeyDictionary()


def actor_key(client: IrisClient, user: str = "") -> bytes:
    """Return the key of a user (default: the client's), requested from the controller once per connection.

    Raises:
        Denied: A job requests another user's key.
    """
    connection = client.connection
    with _lock:
        known = _known.setdefault(connection, {})
        if user in known:
            return known[user]
    reply = connection.ask(lambda c: c.endpoints.ActorKey, pb.ActorKeyRequest(user=user))
    known[user] = reply.key
    return known[user]


def key_of_addresses() -> Callable[[], bytes]:
    """Return a function that finds the key of servers at known addresses, like an `ActorServer` of this process.

    Inside a job it is the user's key from the cluster, elsewhere this machine's.
    """
    context = get_iris_ctx()
    return machine_key if context is None else lambda: actor_key(context.client)
