"""The messages between a worker and its guardian. Their releases may differ, their protocol versions must be equal.

A frame is a length (u32, big-endian) and a JSON object. The first frame of each side is its hello:

    worker:    {"hello": {"version": …, "pid": …, "role": "worker" | "control"}}
    guardian:  {"hello": {"version": …, "guardian": id, "pid": …, "build": …, "limits": …, "descriptors": …,
               "held": [attempt, …]}}
               or {"refused": why}, then the connection ends; with "version" if the versions differ

`held` contains every attempt that the guardian has not been told to forget. A "control" peer can only read `held`. The
following frames, in any order and number:

    worker:    {"do": [[verb, …], …]}
               "start", {spec}      · "stop", id, grace_ms, note or null  · "forget", id
               "join", {fields}     run a command inside a live attempt
               "common", number, {what many specs have in common}  · "drop", number
               "run", number, id, cwd, log, {env}, {note}, [mount, …]   with that and these
               "contact", ms        a beat sent at this moment of CLOCK_BOOTTIME was acknowledged by the controller
               "finish", grace_ms   stop everything, then exit
    guardian:  {"news": [[verb, …], …]}
               "started", id, pid, at_ms · "refused", id, why, message, exit_code
               "grew", id, log_size     · "ended", id, {end}
               "over", id, pid, code, signal, log_size, at_ms an end without further details

Unknown verbs and fields are ignored, so a release may add some without a new version number. The version changes only
if ignoring them would be wrong. Reports describe a state, not a stream: when a worker reconnects, `held` contains all
changes since.
"""

import json
import struct
import time
from collections.abc import Iterator
from typing import Any, Final

VERSION: Final = 3

MAX_HELLO_BYTES: Final = 64 * 1024
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)

Message = dict[str, Any]


def boot_ms() -> int:
    """Return milliseconds since the machine booted, including suspended time; the same in all its processes."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ProtocolError(Exception):
    """The bytes received are not a message of this protocol."""


def encode(message: Message) -> bytes:
    """Return the bytes of one frame."""
    body = _ENCODER.encode(message).encode()
    return _LENGTH.pack(len(body)) + body


class JsonFrameReader:
    """Splits a stream of bytes into messages.

    Attributes:
        limit: Maximum length of a frame; small until the peer has sent a valid hello.
    """

    __slots__ = ("_buffer", "limit")

    def __init__(self, limit: int = MAX_HELLO_BYTES) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Return the messages completed by `data`. Raises ProtocolError; the reader is unusable afterwards."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self.limit:
                raise ProtocolError(f"a frame of {length} bytes; at most {self.limit} are allowed")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield _decode(body)


def _decode(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame that is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError("a frame that is not a JSON object")
    return message
