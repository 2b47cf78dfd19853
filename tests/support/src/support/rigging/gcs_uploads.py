"""Uploads of a test GCS server: the multipart form and resumable sessions."""

import email.parser
import email.policy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.rigging.gcs_model import Conditions, GcsError

#: Every chunk but the last is a multiple of this.
CHUNK_BYTES = 2**18

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a multipart body."""

    content_type: str
    body: bytes


@dataclass(slots=True)
class ResumableSession:
    """An upload in chunks: the object's metadata, and the bytes so far."""

    bucket: str
    name: str
    conditions: Conditions
    resource: Mapping[str, Any]
    content_type: str | None
    received: bytearray = field(default_factory=bytearray)

    def take(self, content_range: str | None, chunk: bytes) -> bool:
        """Append a chunk, skipping bytes already received. Return whether the object is complete."""
        if content_range is None:
            self.received = bytearray(chunk)
            return True
        match = _CONTENT_RANGE.fullmatch(content_range)
        if match is None:
            raise GcsError(400, f"Invalid Content-Range: {content_range}")
        first, last, total = match.groups()
        if first is not None:
            start = int(first)
            if int(last) - start + 1 != len(chunk):
                raise GcsError(400, f"Content-Range {content_range} with {len(chunk)} bytes")
            if start > len(self.received):
                raise GcsError(503, f"Chunk at {start} after only {len(self.received)} bytes")
            if total == "*" and len(chunk) % CHUNK_BYTES:
                raise GcsError(400, f"Chunk of {len(chunk)} bytes is no multiple of {CHUNK_BYTES} and not the last")
            self.received += memoryview(chunk)[len(self.received) - start :]
        return total != "*" and len(self.received) == int(total)

    def progress(self) -> dict[str, str]:
        return {"Range": f"bytes=0-{len(self.received) - 1}"} if self.received else {}


def multipart_object(content_type: str, body: bytes) -> tuple[dict[str, Any], Part]:
    """Return the JSON resource and the content of a multipart/related upload, with CRLF or LF line ends."""
    parsed = email.parser.HeaderParser(policy=email.policy.HTTP).parsestr(f"Content-Type: {content_type}\n\n")
    boundary = parsed.get_boundary()
    if not boundary:
        raise GcsError(400, f"No boundary in Content-Type: {content_type}")
    delimiter = b"--" + boundary.encode()
    begin = body.find(delimiter)
    middle = body.find(b"\n" + delimiter, begin + len(delimiter))
    end = body.rfind(b"\n" + delimiter + b"--")
    if begin < 0 or middle < 0 or end <= middle:
        raise GcsError(400, "A multipart upload has two parts")
    first = _part(body[begin + len(delimiter) : middle])
    second = _part(body[middle + 1 + len(delimiter) : end])
    try:
        return json.loads(first.body), second
    except ValueError:
        raise GcsError(400, "The first part is no JSON") from None


def _part(section: bytes) -> Part:
    """Return the part between two delimiters, without the adjacent line ends."""
    line_end = b"\r\n" if section.startswith(b"\r\n") else b"\n"
    head, _, content = section.removeprefix(line_end).partition(line_end * 2)
    headers = email.parser.BytesHeaderParser(policy=email.policy.HTTP).parsebytes(head + b"\n\n")
    # The line end before a delimiter is no content; its LF is cut off already.
    content = content.removesuffix(b"\r") if line_end == b"\r\n" else content
    return Part(str(headers.get("Content-Type", "")), content)
