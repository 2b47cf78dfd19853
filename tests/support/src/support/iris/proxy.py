"""A TCP proxy that cuts, holds and refuses connections when a test says so."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_PIECE: Final = 64 * 1024
_KERNEL_BYTES: Final = 8 * 1024 * 1024


class TcpProxy:
    """Forwards connections to `target` ("host:port"), which may be changed; counts them, and the bytes of both ways.

    `bytes_a_second` is what each direction of a connection lets through; 0: as fast as it goes.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.accepted = 0
        self.forwarded = 0
        self.bytes_a_second = 0.0
        self._in_hand: dict[socket.socket, bytes] = {}
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._limit: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection, without a word to either side."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    # A reset, not an orderly end.
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def cut_after(self, size: int) -> None:
        """Cut once so many more bytes were passed on; once."""
        with self._lock:
            self._limit = self.forwarded + size

    def refuse(self, refusing: bool) -> None:
        """Cut new connections at once."""
        self._refusing = refusing

    def hold(self) -> None:
        """Pass nothing on until `release`."""
        self._flowing.clear()

    def release(self) -> None:
        self._flowing.set()

    def held(self) -> bytes:
        """Return what clients have sent that was not passed on, as far as the kernel takes it."""
        with self._lock:
            return b"".join(self._in_hand.get(near, b"") + _received(near) for near, _ in self._pairs)

    def close(self) -> None:
        self._listener.close()
        self._flowing.set()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                near.close()
                continue
            host, _, port = self.target.rpartition(":")
            try:
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.add((near, far))
                self.accepted += 1
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                self._in_hand[source] = data
                self._flowing.wait()
                del self._in_hand[source]
                sink.sendall(data)
                if self._count(len(data)):
                    self.cut()
                if self.bytes_a_second:
                    time.sleep(len(data) / self.bytes_a_second)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, size: int) -> bool:
        with self._lock:
            self.forwarded += size
            if self._limit is None or self.forwarded < self._limit:
                return False
            self._limit = None
            return True


def _received(end: socket.socket) -> bytes:
    """Return what has come and was not read yet."""
    with suppress(OSError):  # nothing, or the connection is broken
        return end.recv(_KERNEL_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return b""


@contextmanager
def tcp_proxy(target: str) -> Iterator[TcpProxy]:
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
