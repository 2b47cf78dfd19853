"""The guardian's socket: one worker at a time, and any number of peers that only read."""

import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

from iris.worker.guardian.guardian import Guardian
from iris.worker.guardian.protocol import (
    MAX_FRAME_BYTES,
    VERSION,
    JsonFrameReader,
    Message,
    ProtocolError,
    encode,
)
from iris.worker.guardian.reactor import READ, WRITE, Reactor

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024
_MOST_CONNECTIONS: Final = 32
_HELLO_S: Final = 10.0


class Peer:
    """One connected peer. Reads never block; at most one frame of unsent data is buffered."""

    def __init__(self, stream: socket.socket, server: "GuardianServer") -> None:
        self.stream = stream
        self.greeted = False
        self.peer = ""
        self._server = server
        self._reader = JsonFrameReader()
        self._unsent = memoryview(b"")

    @property
    def is_busy(self) -> bool:
        """Whether sent data is still buffered; then send nothing."""
        return bool(self._unsent)

    def greet(self) -> None:
        """Record that the peer has sent a valid hello."""
        self.greeted = True
        self._reader.limit = MAX_FRAME_BYTES

    def send(self, message: Message) -> None:
        self._unsent = memoryview(encode(message))
        self.write()

    def on_event(self) -> None:
        """Handle an event: the stream is readable, writable or hung up."""
        if self._unsent:
            self.write()
        self.read()

    def read(self) -> None:
        """Read and process available data; notify the server if the connection has ended."""
        while True:
            try:
                data = self.stream.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._server.lost(self)
                return
            try:
                for message in self._reader.feed(data):
                    self._server.received(self, message)
            except ProtocolError as error:
                logger.error("%s: %s", self.peer or "a message before the hello", error)
                self._server.lost(self)
                return
            if len(data) < _READ_BYTES:
                return

    def write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self.stream.send(self._unsent) :]
        except BlockingIOError:
            self._server.want(self, READ | WRITE)
        except OSError:
            self._unsent = memoryview(b"")  # the read that follows finds the end
        else:
            self._server.want(self, READ)


class GuardianServer:
    """Accepts connections and sends the guardian's messages.

    Args:
        hello: The guardian's hello.
        is_own: Returns whether processes with this uid may connect.
    """

    def __init__(
        self,
        reactor: Reactor,
        guardian: Guardian,
        listener: socket.socket,
        hello: Message,
        is_own: Callable[[int], bool] = lambda uid: uid in (0, os.getuid()),
    ) -> None:
        self._reactor = reactor
        self._guardian = guardian
        self._listener = listener
        self._hello = hello
        self._is_own = is_own
        self._connections: dict[int, Peer] = {}
        self._wanted: dict[int, int] = {}
        self._worker: Peer | None = None
        reactor.watch(listener.fileno(), self._accept)

    @property
    def has_worker(self) -> bool:
        return self._worker is not None

    def wait_s(self) -> float | None:
        """Return the seconds until the next report is due; None to wait for an event."""
        if self._worker is None or self._worker.is_busy or self._guardian.news_due is None:
            return None
        return max(self._guardian.news_due - time.monotonic(), 0.0)

    def send_news(self) -> None:
        """Send the worker the reports that are due."""
        worker, due = self._worker, self._guardian.news_due
        if worker is None or worker.is_busy or due is None or due > time.monotonic():
            return
        news = self._guardian.take_news()
        if news:
            worker.send({"news": news})

    def received(self, connection: Peer, message: Message) -> None:
        """Process a message. Raises ProtocolError for an invalid one."""
        if not connection.greeted:
            self._greet(connection, message)
        elif connection is self._worker:
            requests = message.get("do")
            for request in requests if isinstance(requests, list) else ():
                if isinstance(request, list) and request:
                    self._guardian.do(*request)

    def lost(self, connection: Peer) -> None:
        """Handle the end of a connection."""
        descriptor = connection.stream.fileno()
        if self._connections.pop(descriptor, None) is None:
            return
        self._reactor.unwatch(descriptor)
        self._wanted.pop(descriptor, None)
        connection.stream.close()
        if connection is self._worker:
            logger.info("%s disconnected; %d attempts continue", connection.peer, self._guardian.live_count)
            self._worker = None
            self._guardian.worker_left()

    def want(self, connection: Peer, events: int) -> None:
        descriptor = connection.stream.fileno()
        if self._wanted.get(descriptor, READ) != events:
            self._wanted[descriptor] = events
            self._reactor.want(descriptor, events)

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self.lost(connection)
        self._reactor.unwatch(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        try:
            stream, _ = self._listener.accept()
        except OSError:
            return
        stream.setblocking(False)
        pid, uid, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if not self._is_own(uid) or len(self._connections) >= _MOST_CONNECTIONS:
            stream.close()
            return
        connection = Peer(stream, self)
        connection.peer = f"process {pid}"
        self._connections[stream.fileno()] = connection
        self._reactor.watch(stream.fileno(), connection.on_event)
        self._reactor.call_later(_HELLO_S, lambda: None if connection.greeted else self.lost(connection))

    def _greet(self, connection: Peer, message: Message) -> None:
        hello = message.get("hello")
        if not isinstance(hello, dict):
            raise ProtocolError("the first message was not a hello")
        if hello.get("version") != VERSION:
            why = f"the worker uses protocol version {hello.get('version')}, the guardian {VERSION}"
            connection.send({"refused": why, "version": VERSION})
            raise ProtocolError(why)
        answer: dict[str, Any] = {**self._hello, "version": VERSION}
        if hello.get("role") == "worker":
            if not self._attach(connection):
                return
            answer["held"] = self._guardian.held()
        else:
            answer["live"] = self._guardian.live_count
        connection.greet()
        connection.send({"hello": answer})

    def _attach(self, connection: Peer) -> bool:
        if self._guardian.finishing:
            connection.send({"refused": "it is exiting"})
            self.lost(connection)
            return False
        for _ in range(2):
            # A worker that died may have left requests unread, and after them its end.
            if self._worker is not None:
                self._worker.read()
        if self._worker is not None:
            connection.send({"refused": f"{self._worker.peer} is its worker"})
            self.lost(connection)
            return False
        self._worker = connection
        logger.info("%s is now the worker", connection.peer)
        return True
