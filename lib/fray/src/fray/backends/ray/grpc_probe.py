"""A single gRPC call without grpcio, which checks that a Ray cluster answers and accepts a token.

Ray's own client would retry for 20 s and log every second. grpcio may not be installed.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEADER_BYTES: Final = 9
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS = 1, 4
_CALL: Final = "/ray.rpc.NodeInfoGcsService/GetClusterId"
_EMPTY_MESSAGE: Final = bytes(5)
# UNAUTHENTICATED and UNIMPLEMENTED. gRPC writes its status without compression, and it is the first of its connection.
_REFUSED: Final = b"grpc-status\x0216"
_UNKNOWN: Final = b"grpc-status\x0212"

Target = tuple[str, int]


class NoAnswerError(Exception):
    """No gRPC server answers there. The message says why."""


def lets_in(target: Target, deadline: float, token: str, *, is_gcs: bool = True) -> bool:
    """Return whether the Ray cluster at `target` accepts this token ("" for none).

    Args:
        target: Host and port.
        deadline: When to give up, as a `time.monotonic` value.
        token: The token.
        is_gcs: Whether the target should be a cluster's GCS. Ray's client server does not know this call.

    Raises:
        NoAnswerError: Nothing answers, or the server does not speak gRPC, or is not a GCS.
    """
    try:
        with contextlib.closing(socket.create_connection(target, _left(deadline))) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("0", ""):
                return True
            connection.sendall(_request(target, token))
            frames = _frames(connection, deadline)
            kind, _, _ = next(frames)
            if kind != _SETTINGS:
                raise NoAnswerError("the server there does not speak gRPC")
            return _is_taken(frames, is_gcs)
    except StopIteration:
        raise NoAnswerError("the connection was closed without an answer") from None
    except TimeoutError:
        raise NoAnswerError("no answer in time") from None
    except (OSError, OverflowError, UnicodeError) as error:
        raise NoAnswerError((isinstance(error, OSError) and error.strerror) or str(error)) from None


def _is_taken(frames: Iterator[tuple[int, int, bytes]], is_gcs: bool) -> bool:
    with contextlib.suppress(OSError):
        for kind, flags, payload in frames:
            if kind == _HEADERS and _REFUSED in payload:
                return False
            if is_gcs and kind == _HEADERS and _UNKNOWN in payload:
                raise NoAnswerError("the server there is not a cluster (a client server's address begins with ray://)")
            if kind in (_RESET, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
                break
    return True


def _request(target: Target, token: str) -> bytes:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _CALL,
        ":authority": f"{target[0]}:{target[1]}",
        "content-type": "application/grpc",
        "te": "trailers",
        **({"authorization": f"Bearer {token}"} if token else {}),
    }
    # Literals that enter no table (RFC 7541, 6.2.2).
    block = b"".join(b"\0" + _literal(name) + _literal(value) for name, value in headers.items())
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0, b""),
            _frame(_HEADERS, _END_HEADERS, 1, block),
            _frame(_DATA, _END_STREAM, 1, _EMPTY_MESSAGE),
        )
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _literal(text: str) -> bytes:
    data = text.encode()
    rest, length = len(data) - 127, bytearray()
    if rest < 0:
        return bytes((len(data),)) + data
    while rest >= 128:
        length.append(rest % 128 + 128)
        rest //= 128
    return b"\x7f" + bytes((*length, rest)) + data


def _frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, int, bytes]]:
    """Yield the type, flags and payload of each frame until the connection closes."""
    while header := _read(connection, _FRAME_HEADER_BYTES, deadline):
        yield header[3], header[4], _read(connection, int.from_bytes(header[:3], "big"), deadline)


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Return exactly that many bytes, or none if the connection closes first."""
    data = b""
    while len(data) < size:
        connection.settimeout(_left(deadline))
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def _left(deadline: float) -> float:
    return max(0.01, deadline - time.monotonic())
