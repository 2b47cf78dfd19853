"""A TCP proxy that cuts and refuses connections on request."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PIECE = 64 * 1024


class TcpProxy:
    """A proxy to `target` ("host:port", may change). It counts connections, and the bytes of both directions."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.accepted = 0
        self.forwarded = 0
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._refusing = False
        self._limit: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection silently."""
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
        """Cut connections once, after that many more bytes."""
        with self._lock:
            self._limit = self.forwarded + size

    def refuse(self, refusing: bool) -> None:
        """Cut new connections at once."""
        self._refusing = refusing

    def close(self) -> None:
        self._listener.close()
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
                sink.sendall(data)
                if self._count(len(data)):
                    self.cut()
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


@contextmanager
def tcp_proxy(target: str) -> Iterator[TcpProxy]:
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
