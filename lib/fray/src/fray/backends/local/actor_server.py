"""Serve calls of local actors from other processes (see `actor_wire`)."""

import logging
import os
import pickle
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Protocol

from fray.backends.common.process_owner import ProcessOwner
from fray.backends.local.actor_wire import Answer
from fray.sending import pickling
from fray.sending.remote_errors import pack_error
from rigging.errors import Conflict

logger = logging.getLogger(__name__)


class Callee(Protocol):
    """An actor that accepts calls."""

    def call_future(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Future[Any]":
        """Queue a call.

        Args:
            method: The method's name.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
        """
        ...


class ActorServer:
    """Accept calls of one actor from other processes until closed (see `listen`)."""

    def __init__(self, actor: Callee, path: str, listener: Listener) -> None:
        self._actor = actor
        self._owner = ProcessOwner()
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._threads: list[threading.Thread] = []
        self._accepting: threading.Thread | None = None
        self._closed = False
        self._path = path
        self._listener = listener

    @classmethod
    def listen(cls, actor: Callee, path: str) -> "ActorServer":
        """Serve an actor at a path. Raise OSError."""
        server = cls(actor, path, Listener(path, backlog=64))
        server._accepting = server._start(server._accept)
        return server

    def close(self) -> None:
        """Refuse new calls, notify the callers, and remove the socket."""
        with self._lock:
            if self._closed or not self._owner.here:
                return
            self._closed = True
            connections = list(self._connections)
        # Neither accept nor a read ends by closing its socket from another thread: a last visitor wakes the one, and
        # a shutdown the others.
        try:
            Client(self._path).close()
        except OSError as error:
            logger.debug("no thread accepts connections at %s any more: %s", self._path, error)
        for connection in connections:
            _shut(connection)
        # It ends with the last visitor. The path goes with it: at the process's end it would be missed in its folder.
        if self._accepting is not None:
            self._accepting.join()

    def join(self) -> None:
        """Wait for the server's threads to end."""
        for thread in list(self._threads):
            thread.join()

    def _start(self, target: Any, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name="fray-actor-server", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    connection = self._listener.accept()
                except OSError as error:
                    logger.warning("an actor's server cannot accept: %s", error)
                    return
                with self._lock:
                    if self._closed:
                        connection.close()
                        return
                    self._connections.add(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: Connection) -> None:
        writing = threading.Lock()
        calls: dict[int, Future[Any]] = {}
        with connection:
            while True:
                try:
                    message = connection.recv_bytes()
                except (EOFError, OSError):
                    break
                self._take(message, calls, partial(_send, connection, writing))
            with self._lock:
                self._connections.discard(connection)

    def _take(self, message: bytes, calls: "dict[int, Future[Any]]", send: Callable[[Answer], None]) -> None:
        """Handle one message of the caller."""

        def answer(future: "Future[Any]") -> None:
            if calls.pop(number, None) is not None or not future.cancelled():
                send(_answer_of(number, future))

        # From processes of this user, as no other user can open the socket's directory.
        number, call = pickle.loads(message)  # noqa: S301
        if not call:
            taken = calls.pop(number, None)
            send(Answer(number, taken_back=taken is not None and taken.cancel()))
            return
        try:
            method, args, kwargs = pickle.loads(call)  # noqa: S301
            future = self._actor.call_future(method, args, kwargs)
        except Exception as error:  # arguments that cannot be made again, or an actor that was shut down: the caller's
            future = _failed(error)
        calls[number] = future
        future.add_done_callback(answer)


def _failed(error: BaseException) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _send(connection: Connection, writing: Any, answer: Answer) -> None:
    data = pickle.dumps(answer)
    try:
        with writing:
            connection.send_bytes(data)
    except OSError as gone:
        logger.debug("the caller of an actor is gone: %s", gone)


def _answer_of(number: int, future: "Future[Any]") -> Answer:
    if future.cancelled():
        return Answer(number, error=pack_error(Conflict("the actor was shut down before the call began")))
    if (error := future.exception()) is not None:
        return Answer(number, error=pack_error(error))
    try:
        return Answer(number, pickling.dumps(future.result(), "the result of an actor's method"))
    except Exception as unpicklable:  # a user's class may raise anything when it is pickled, and the caller waits
        return Answer(number, error=pack_error(unpicklable))


def _shut(connection: Connection) -> None:
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        logger.debug("the connection has ended already: %s", error)
