"""ActorClient: calls to one actor by name or address."""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from iris.actor.client import open_callers
from iris.actor.client.call import ActorCall, AnyCaller
from iris.actor.client.caller import DEFAULT_LIMITS, RECONNECT_TIMEOUT_S, Caller, ClientLimits
from iris.actor.client.keys import actor_key, key_of_addresses
from iris.actor.client.operations import Operations, OperationStatus
from iris.actor.client.pending import PendingCall
from iris.actor.client.places import FixedPlace, NamedPlace, Place, Target
from iris.actor.client.resolvers import FixedResolver, ProxyResolver
from iris.actor.transport.loop import Closing, actor_loop, refuse_in_loop, run
from iris.actor.transport.payload import Dumps, by_cloudpickle, dump_arguments
from iris.client.client import IrisClient
from iris.client.context import get_iris_ctx
from iris.client.endpoints import EndpointResolver
from iris.domain.ids import user_of
from iris.rpc.forks import in_fork, use_grpc
from rigging.errors import Conflict, InvalidRequest, NotFound
from rigging.timing import Duration

_LONGEST_S: Final = 100 * 365 * 86400.0
"""Maximum timeout; a longer timeout counts as none, because timers would overflow."""


class ActorMethod:
    """A callable method of an actor."""

    def __init__(self, client: "ActorClient", name: str) -> None:
        self._client = client
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method and wait for the result."""
        return self._client.call(self._name, args, kwargs).result()

    def remote(self, *args: Any, **kwargs: Any) -> ActorCall:
        """Call the method and return immediately."""
        return self._client.call(self._name, args, kwargs)


class ActorClient(Closing):
    """Calls to one actor. Thread-safe. Calls of one thread start in order.

    counter = ActorClient("counter") # inside a job; the resolver finds the name counter.add(1) # waits for the result
    counter.add.remote(1).result(5) # does not

    A call survives lost connections: it runs once, and its result is kept until this process receives it. When the
    actor dies, calls that may have started fail with ActorDied unless `max_retries` allows a retry. Other calls wait
    for the actor's next life.

    Args:
        resolver: The actor's name, if it is the only argument. Otherwise it locates actors: a `FixedResolver`, a
            `ProxyResolver`, or the resolver of an Iris context.
        name: The endpoint's name: a leaf inside a job, the full name anywhere.
        call_timeout: Alias of `timeout`.
        client: The cluster; None for that of the current job.
        timeout: Default timeout of calls in seconds; None for no limit.
        max_retries: How often a call is retried after the actor died; -1 means no limit.
        task_id: The only task that registers the actor. Calls fail when this task has ended, even if its job continues.
    """

    def __init__(
        self,
        resolver: str | FixedResolver | ProxyResolver | EndpointResolver = "",
        name: str = "",
        call_timeout: float | Duration | None = None,
        *,
        client: IrisClient | None = None,
        timeout: float | None = None,
        max_retries: int = 0,
        task_id: str = "",
    ) -> None:
        if isinstance(resolver, str):
            name = resolver or name
        if call_timeout is not None:
            timeout = call_timeout.to_seconds() if isinstance(call_timeout, Duration) else call_timeout
        if isinstance(resolver, FixedResolver):
            place = Place(resolver.addresses(name)[0], "", name)
            label = f"{name!r} at {place.address}"
            self._setup(lambda: FixedPlace(label, place), key_of_addresses(), timeout, max_retries)
            return
        if isinstance(resolver, ProxyResolver):
            client = resolver.client
        cluster = client or _own_cluster(name)
        full_name = _full_name(cluster, name)
        user = user_of(full_name)
        self._setup(
            lambda: NamedPlace(cluster.connection, full_name, task_id),
            lambda: actor_key(cluster, user),
            timeout,
            max_retries,
        )

    @classmethod
    def at(
        cls,
        address: str,
        actor: str,
        *,
        key: bytes,
        timeout: float | None = None,
        max_retries: int = 0,
        limits: ClientLimits = DEFAULT_LIMITS,
    ) -> "ActorClient":
        """Return a client of an actor at a known "host:port".

        Args:
            address: "host:port".
            actor: The actor's name on that server.
            key: The key of the actor's server.
            timeout: Timeout of each call in seconds; None for no limit.
            max_retries: How often a call is retried after the actor died.
            limits: The client's limits.
        """
        if not isinstance(key, bytes):
            raise InvalidRequest(f"the key of actor {actor!r} at {address} must be bytes, not {type(key).__name__}")
        made = cls.__new__(cls)
        label = f"{actor!r} at {address}"
        made._setup(lambda: FixedPlace(label, Place(address, "", actor)), lambda: key, timeout, max_retries, limits)
        return made

    @classmethod
    def to(
        cls,
        target: Target,
        key: Callable[[], bytes],
        *,
        timeout: float | None = None,
        max_retries: int = 0,
        limits: ClientLimits = DEFAULT_LIMITS,
    ) -> "ActorClient":
        """Return a client of an actor whose location `target` follows.

        Args:
            target: Follows the actor's location.
            key: The key of the actor's server.
            timeout: Timeout of each call in seconds; None for no limit.
            max_retries: How often a call is retried after the actor died.
            limits: The client's limits.
        """
        made = cls.__new__(cls)
        made._setup(lambda: target, key, timeout, max_retries, limits)
        return made

    @classmethod
    def of(cls, caller: AnyCaller) -> "ActorClient":
        """Return a client of the actor that `caller` reaches."""
        made = cls.__new__(cls)
        made._setup(_unused, _unused, None, 0)
        made._caller = caller
        return made

    def _setup(
        self,
        target: Callable[[], Target],
        key: Callable[[], bytes],
        timeout: float | None,
        max_retries: int,
        limits: ClientLimits = DEFAULT_LIMITS,
    ) -> None:
        self._make_target = target
        self._key = key
        self._timeout = timeout
        self._max_retries = max_retries
        self._caller: AnyCaller | None = None
        self._limits = limits
        self._in_flight = threading.Semaphore(limits.max_in_flight)
        self._operations = Operations()
        self._lock = threading.Lock()
        self._closed = False

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_"):
            raise AttributeError(f"{name!r} is not public, so it cannot be called on an actor")
        return ActorMethod(self, name)

    def method(self, name: str) -> ActorMethod:
        """Return the actor's method with this name, even if this class has an attribute with the same name."""
        return ActorMethod(self, name)

    def call(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_retries: int | None = None,
        dumps: Dumps = by_cloudpickle,
    ) -> ActorCall:
        """Make a call and return immediately. With 10,000 unfinished calls, first wait for one to end.

        Args:
            method: The method's name.
            args: Positional arguments. They are pickled before this returns.
            kwargs: Keyword arguments.
            timeout: Seconds until the call fails with DeadlineExceeded. A call that has not started by then does not
                run.
            max_retries: How often the call is retried after the actor died; None for the client's default.
            dumps: Pickles arguments that are not plain.

        Raises:
            InvalidRequest: The arguments cannot be pickled, or the method name is invalid. Conflict: The client was
                closed, or this process is a fork.
        """
        caller = self._connected()
        if not method.isascii():
            _check_name(method, caller)
        try:
            data = dump_arguments(args, kwargs or {}, dumps)
        except Exception as error:  # whatever the classes of the arguments do
            raise InvalidRequest(f"{method!r} of actor {caller.label}: cannot pickle the arguments: {error}") from error
        limit = self._timeout if timeout is None else timeout
        deadline = None if limit is None else _deadline(method, limit)
        retries = self._max_retries if max_retries is None else max_retries
        call = PendingCall(method, data, deadline, retries, self._in_flight.release)
        if not self._in_flight.acquire(blocking=False):
            refuse_in_loop("this call waits until another one ends")
            self._in_flight.acquire()
        caller.submit(call)
        return ActorCall(caller, call)

    def start_operation(self, method: str, *args: Any, **kwargs: Any) -> str:
        """Make a call and return a number that identifies it to this client.

        Args:
            method: The method's name.
            *args: Positional arguments.
            **kwargs: Keyword arguments.
        """
        return self._operations.add(self.call(method, args, kwargs))

    def poll_operation_status(self, operation_id: str) -> OperationStatus:
        """Return the current status of an operation. Raise NotFound."""
        return self._operations.poll(operation_id)

    def get_operation(self, operation_id: str) -> OperationStatus:
        """Return the operation's status, with its result if there is one."""
        return self._operations.poll(operation_id)

    def cancel_operation(self, operation_id: str) -> bool:
        """Cancel an operation: it does not run if it has not started. Return False if it had ended. Raise NotFound."""
        return self._operations.cancel(operation_id)

    def close(self) -> None:
        """Close the connection after delivering sent calls. Unfinished calls fail with Conflict.

        Calls that the actor has not received within a second are lost. Does nothing in a fork.
        """
        if in_fork():
            return
        refuse_in_loop("closing an ActorClient waits for its connection")
        with self._lock:
            self._closed = True
            caller, self._caller = self._caller, None
        if isinstance(caller, Caller):
            run(open_callers.close(caller))

    def _connected(self) -> AnyCaller:
        caller = self._caller
        if caller is not None and not in_fork():
            return caller
        use_grpc("this ActorClient cannot be used here" if caller is None else f"actor {caller.label} cannot be called")
        refuse_in_loop("the first call of an ActorClient waits for its connection")
        with self._lock:
            if self._closed:
                raise Conflict("this ActorClient was closed; make a new one")
            if self._caller is None:
                made = run(_make_caller(self._make_target, self._key(), self._limits))
                self._caller = made
                open_callers.keep_open(made)
            return self._caller


async def _make_caller(target: Callable[[], Target], key: bytes, limits: ClientLimits) -> Caller:
    loop = actor_loop()
    return Caller(loop, target(), key, _whoami(), RECONNECT_TIMEOUT_S, limits)


def _deadline(method: str, limit: float) -> float | None:
    if math.isnan(limit):
        raise InvalidRequest(f"the timeout of a call of {method!r} must be a number of seconds, not {limit}")
    return None if limit > _LONGEST_S else time.monotonic() + limit


def _check_name(method: str, caller: AnyCaller) -> None:
    try:
        method.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{method!r} of actor {caller.label}: invalid method name: {error}") from None


def _own_cluster(name: str) -> IrisClient:
    context = get_iris_ctx()
    if context is None:
        raise InvalidRequest(f"ActorClient({name!r}): outside of an Iris job, name the cluster: client=...")
    return context.client


def _full_name(cluster: IrisClient, name: str) -> str:
    """Return the full name of a leaf: a current endpoint's, else in this job's namespace."""
    if name.startswith("/"):
        return name
    found = cluster.resolver.resolve(name)
    if not found:
        raise NotFound(f"no endpoint {name!r} in this job or in those above it")
    return found[-1].name


def _whoami() -> str:
    return os.environ.get("IRIS_ATTEMPT_ID") or f"{os.environ.get('USER', 'unknown')}@{socket.gethostname()}"


def _unused() -> NoReturn:
    raise Conflict("this ActorClient was closed; its actor was reached within the process")
