"""The numbers of a log's lines. Logs only grow, so that what was counted stays true."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from marin.browser.confined import Confined

_CHUNK: Final = 1 << 20
_KEPT: Final = 64
_HEAD: Final = 256


class LineIndex:
    """Count the lines of logs on a disk, each part once. Threads may share it.

    Args:
        place: The storage root.
    """

    def __init__(self, place: Confined) -> None:
        self._place = place
        self._lock = threading.Lock()
        # The beginning of a file, by which another one of its name is known, and the line ends in each whole chunk.
        self._counts: OrderedDict[str, tuple[bytes, list[int]]] = OrderedDict()

    def number_at(self, name: str, offset: int) -> int:
        """Return the number of the line, from 1, that an offset is in."""
        whole, counts = offset // _CHUNK, self._counted(name, offset)
        rest = self._place.read(name, whole * _CHUNK, offset)
        return sum(counts[:whole]) + rest.count(b"\n") + 1

    def offset_of(self, name: str, number: int, size: int) -> int:
        """Return where a line begins; the file's size if it has fewer lines."""
        missing = number - 1  # line ends before it
        if missing <= 0:
            return 0
        chunk = 0
        for count in self._counted(name, size):
            if count >= missing:
                break
            missing -= count
            chunk += 1
        content, at = self._place.read(name, chunk * _CHUNK, min(size, (chunk + 1) * _CHUNK)), -1
        for _ in range(missing):
            at = content.find(b"\n", at + 1)
            if at < 0:
                return size
        return chunk * _CHUNK + at + 1

    def matching(self, name: str, text: bytes, size: int, most: int) -> list[tuple[int, bytes]]:
        """Return the last lines of a log that contain a text, each with its number.

        Args:
            name: The log.
            text: The text, without line ends.
            size: The log's size.
            most: Maximum number of lines.
        """
        found: list[tuple[int, bytes]] = []
        end = size
        while end > 0 and len(found) < most:
            start = max(0, end - _CHUNK)
            content = self._place.read(name, start, end)
            # Whole lines: the rest is of the part before, if it is no longer than that.
            cut = (content.find(b"\n") + 1 or len(content)) if start else 0
            hit = content.rfind(text, cut)
            first = self.number_at(name, start) if hit >= 0 else 0
            while hit >= 0 and len(found) < most:
                begin = max(content.rfind(b"\n", 0, hit) + 1, cut)
                over = content.find(b"\n", hit)
                line = content[begin:] if over < 0 else content[begin:over]
                found.append((first + content.count(b"\n", 0, begin), line))
                hit = content.rfind(text, cut, begin)
            end = start + cut if cut < len(content) else start
        return found[::-1]

    def _counted(self, name: str, offset: int) -> list[int]:
        """Return the counts of at least the whole chunks before an offset."""
        head = self._place.read(name, 0, _HEAD)
        with self._lock:
            seen, known = self._counts.get(name, (b"", []))
        if not head.startswith(seen):
            known = []
        for chunk in range(len(known), offset // _CHUNK):
            known = [*known, self._place.read(name, chunk * _CHUNK, (chunk + 1) * _CHUNK).count(b"\n")]
        with self._lock:
            self._counts[name] = (head, known)
            self._counts.move_to_end(name)
            while len(self._counts) > _KEPT:
                self._counts.popitem(last=False)
        return known
