"""Calls of local actors from other processes on this machine, over sockets that only this user can open.

Pickling a handle starts a listener and pickles the actor's address. In the actor's own process it unpickles to the
ordinary handle; elsewhere calls use one connection per process and actor. Every message is a length and a pickle.
Callers send (number, pickled (method, args, kwargs)), or (number, b"") to cancel a call; the actor sends an `Answer`.
Nested pickles are decoded separately, so that a broken one affects only its own call.
"""

import itertools
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection
from typing import Any

from fray.actor import ActorFuture
from fray.backends.common.actors import ActorRef, CallFuture
from fray.errors import ActorLost
from fray.sending import pickling
from fray.sending.remote_errors import unpack_error
from rigging.process.callbacks import call_apart
from rigging.process.fork_lock import ForkLock


class LocalActorFuture(CallFuture):
    """The future result of a call of a local actor."""

    def __init__(
        self, ref: ActorRef, method: str, future: "Future[Any]", take_back: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(ref, method)
        self._future = future
        self._end = take_back or future.cancel

    def result(self, timeout: float | None = None) -> Any:
        try:
            return self._future.result(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        except TimeoutError:
            # Also what the method itself may have raised: only ours while the call still runs.
            if self._future.done():
                raise
            raise self._late(timeout) from None
        except CancelledError:
            # Also what the method itself may have raised.
            if not self._future.cancelled():
                raise
            raise self._never_began() from None

    def done(self) -> bool:
        return self._future.done()

    def _take_back(self) -> bool:
        return self._end()

    def add_done_callback(self, callback: Callable[[ActorFuture[Any]], object]) -> None:
        self._future.add_done_callback(lambda _: call_apart(lambda: callback(self)))


@dataclass(frozen=True, slots=True)
class ActorAddress:
    """The address of an actor for other processes, with its static properties."""

    path: str
    label: str
    class_name: str
    methods: frozenset[str]

    def runs_here(self) -> bool:
        return False

    def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LocalActorFuture:
        return channel_to(self).call(method, args, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return actor_at, (self.path, self.label, self.class_name, self.methods)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call: a pickled value or a packed error. With `taken_back`: the answer to its cancellation."""

    number: int
    value: bytes = b""
    error: bytes | None = None
    taken_back: bool | None = None


class Channel:
    """This process's connection to an actor in another process (see `open`)."""

    def __init__(self, address: ActorAddress, connection: Connection) -> None:
        self._address = address
        self._connection = connection
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._taking_back: dict[int, Future[bool]] = {}
        self._numbers = itertools.count()
        self._lost = False

    @classmethod
    def open(cls, address: ActorAddress) -> "Channel":
        """Connect to an actor. Raise ActorLost."""
        try:
            channel = cls(address, Client(address.path))
        except OSError as error:
            raise ActorLost(f"actor {address.label} cannot be reached: {error.strerror or error}") from None
        threading.Thread(target=channel._receive, name="fray-actor-channel", daemon=True).start()
        return channel

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost

    def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LocalActorFuture:
        """Send a call. Calls of one thread arrive in order.

        Args:
            method: The method's name.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
        """
        call = pickling.dumps((method, args, dict(kwargs)), f"a call of {method!r} of actor {self._address.label}")
        future: Future[Any] = Future()
        with self._lock:
            if self._lost:
                raise self._loss(method)
            number = next(self._numbers)
            self._pending[number] = future
            try:
                self._connection.send_bytes(pickle.dumps((number, call)))
            except OSError:
                del self._pending[number]
                raise self._loss(method) from None
        return LocalActorFuture(self._address, method, future, partial(self._take_back, number))

    def _take_back(self, number: int) -> bool:
        """Ask the actor's process to end a call that has not begun."""
        with self._lock:
            if number not in self._pending or self._lost:
                return False
            taken = self._taking_back.setdefault(number, Future())
            try:
                self._connection.send_bytes(pickle.dumps((number, b"")))
            except OSError:
                return False
        return taken.result()

    def _loss(self, method: str) -> ActorLost:
        return ActorLost(f"actor {self._address.label} is gone: whether {method!r} has run is not known")

    def _receive(self) -> None:
        with self._connection:
            while True:
                try:
                    answer: Answer = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - the actor's process
                except (EOFError, OSError):
                    break
                with self._lock:
                    taken = self._taking_back.pop(answer.number, None) if answer.taken_back is not None else None
                    future = self._pending.pop(answer.number, None) if answer.taken_back is not False else None
                if future is not None:
                    self._settle(future, answer)
                if taken is not None:
                    taken.set_result(bool(answer.taken_back))
            with self._lock:
                self._lost = True
                pending, asked = list(self._pending.values()), list(self._taking_back.values())
        for future in pending:
            future.set_exception(self._loss("the call"))
        for taken in asked:
            taken.set_result(False)

    def _settle(self, future: "Future[Any]", answer: Answer) -> None:
        if answer.taken_back:
            future.cancel()
            return
        if answer.error is not None:
            future.set_exception(unpack_error(answer.error, f"actor {self._address.label}"))
            return
        try:
            value = pickle.loads(answer.value)  # noqa: S301 - as above
        except Exception as error:  # a user's class may raise anything when it is unpickled: the caller's
            future.set_exception(error)
        else:
            future.set_result(value)


_channels: dict[tuple[int, str], Channel] = {}
_opening = ForkLock()


def channel_to(address: ActorAddress) -> Channel:
    """Return this process's channel to the actor, opening it if needed. Raise ActorLost."""
    # A fork must not share its parent's connections: hence the process id in the key.
    key = (os.getpid(), address.path)
    with _opening:
        channel = _channels.get(key)
        if channel is None or channel.lost:
            channel = _channels[key] = Channel.open(address)
        return channel


_hosted: "weakref.WeakValueDictionary[tuple[int, str], ActorRef]" = weakref.WeakValueDictionary()


def host(address: ActorAddress, actor: ActorRef) -> None:
    """Register an actor of this process under its address."""
    _hosted[os.getpid(), address.path] = actor


def actor_at(path: str, label: str, class_name: str, methods: frozenset[str]) -> ActorRef:
    """Return the actor that listens at `path` in its own process, and its address elsewhere.

    Args:
        path: The path of its socket.
        label: A readable name of the actor.
        class_name: The name of its class, for messages.
        methods: The methods that can be called.
    """
    return _hosted.get((os.getpid(), path)) or ActorAddress(path, label, class_name, methods)
