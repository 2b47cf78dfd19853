"""Packs finished pieces of logs and moves them to the remote state, in a background thread.

A piece is complete in at least one form at all times: the keeper removes a form only after the next one is synced to
disk or acknowledged by the remote storage. The next start removes duplicates after a crash. While the disk is full or
the storage fails, pieces do not change, and the keeper retries.
"""

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.controller.logs.lines import counted_blocks
from iris.controller.logs.names import (
    MOVED,
    PACKED,
    RAW,
    LogFileName,
    file_name,
    moved_note,
    object_name,
    packed_name,
    parse_name,
    read_moved_note,
)
from iris.controller.logs.packed import pack
from iris.controller.logs.pieces import LogPlace, PackedReader
from iris.controller.logs.remote import RemotePieces
from iris.controller.logs.store import LogKey, LogStore
from rigging.filesystem import write_bytes_atomic
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

_TEMPORARY: Final = ".marin-tmp-"


@dataclass(frozen=True, slots=True)
class Piece:
    """A finished piece of a log, as a range of bytes."""

    key: LogKey
    start: int
    size: int


class LogKeeper:
    """Processes the pieces of a store.

    Args:
        remote: The destination of packed pieces; None keeps them.
        call_in_loop: Calls a function soon in the thread that uses the store.
        retry_s: First and longest delay after a failure.
    """

    def __init__(
        self,
        store: LogStore,
        remote: RemotePieces | None,
        call_in_loop: Callable[[Callable[[], None]], object],
        retry_s: tuple[float, float] = (1.0, 60.0),
    ) -> None:
        self._store = store
        self._remote = remote
        self._call_in_loop = call_in_loop
        self._waiting: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._late: list[Piece] = []  # tried in vain
        self._backoff = ExponentialBackoff(initial=retry_s[0], maximum=retry_s[1])
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-keeper", daemon=True)

    def start(self) -> None:
        """Start with the existing pieces, and continue with new ones."""
        self._store.on_ripe = lambda key, start, size: self._waiting.put(Piece(key, start, size))
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Stop the thread. Abandon a move to an unresponsive storage; the piece's local form is complete."""
        self._store.on_ripe = None
        self._closing.set()
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        for piece in leftovers(self._store.root):
            if self._closing.is_set():
                return
            self._tend(piece)
        retry_at = 0.0
        while not self._closing.is_set():
            self._empty_trash()
            with contextlib.suppress(queue.Empty):
                ripe = self._waiting.get(timeout=max(retry_at - time.monotonic(), 0) if self._late else None)
                if ripe is not None:
                    self._tend(ripe)
            if self._late and time.monotonic() >= retry_at:
                late, self._late = self._late, []
                for piece in late:
                    if not self._closing.is_set():
                        self._tend(piece)
                if not self._late:
                    self._backoff.reset()
                retry_at = time.monotonic() + self._backoff.next_interval()

    def _tend(self, piece: Piece) -> None:
        try:
            self.tend(piece)
        # Storages raise what they like; whatever it is, the piece is where it was and is tried again.
        except Exception as error:
            if not self._late:
                logger.warning("a piece of a log stays as it is for now: %s: %s", type(error).__name__, error)
            self._late.append(piece)

    def tend(self, piece: Piece) -> None:
        """Pack a piece, and move it if there is a destination. Raise OSError or the storage's errors."""
        place = self._store.place(piece.key)
        _pack(place, piece)
        self._call_in_loop(lambda: self._store.tended(piece.key, piece.start, piece.size))
        if self._remote is not None:
            _move(place, piece, self._remote)
            self._call_in_loop(lambda: self._store.tended(piece.key, piece.start, piece.size))

    def _empty_trash(self) -> None:
        if self._remote is None:
            return
        with contextlib.suppress(FileNotFoundError):
            for note in self._store.trash.iterdir():
                try:
                    self._remote.remove(read_moved_note(note)[0])
                # See `_tend`; the note stays, so it is removed later.
                except Exception as error:
                    logger.warning("a piece of a log is not yet removed from the remote state: %s", error)
                    return
                note.unlink()


def _pack(place: LogPlace, piece: Piece) -> None:
    raw, packed = place.raw(piece.start), place.packed(piece.start, piece.size)
    try:
        data = raw.read_bytes()
    except FileNotFoundError:
        return  # packed or dropped before
    if len(data) != piece.size:
        return  # it went on: what is asked for is not finished
    write_bytes_atomic(packed, pack(data), durable=True)
    raw.unlink()


def _move(place: LogPlace, piece: Piece, remote: RemotePieces) -> None:
    packed = place.packed(piece.start, piece.size)
    try:
        data = packed.read_bytes()
    except FileNotFoundError:
        return
    name = object_name(piece.key[0], LogFileName(*piece.key[1:], piece.start, piece.size, PACKED))
    remote.put(name, data)
    blocks = PackedReader(lambda offset, count: data[offset : offset + count]).blocks
    counts = counted_blocks(blocks, piece.start)
    # Where a record is cut reading cannot begin; such a piece is one without numbers.
    is_counted = counts and counts[0].is_whole
    note = moved_note(name, sum(each.lines for each in counts)) if counts and is_counted else name.encode()
    write_bytes_atomic(place.packed(piece.start, piece.size, MOVED), note, durable=True)
    packed.unlink(missing_ok=True)


def leftovers(root: Path) -> Iterator[Piece]:
    """Return the finished pieces below a directory that may need packing or moving. Remove duplicates after a crash."""
    for directory, _, names in os.walk(root):
        logs: dict[tuple[int, int], list[LogFileName]] = {}
        for text in names:
            if text.startswith(_TEMPORARY):
                Path(directory, text).unlink(missing_ok=True)
            elif (name := parse_name(text)) is not None:
                logs.setdefault(name[:2], []).append(name)
        job_id = "/" + Path(directory).relative_to(root).as_posix()
        for (index, attempt), found in logs.items():
            yield from _finished(Path(directory), (job_id, index, attempt), found)


def _finished(directory: Path, key: LogKey, names: list[LogFileName]) -> Iterator[Piece]:
    last = max(name.start for name in names)
    forms: dict[int, set[str]] = {}
    for name in names:
        forms.setdefault(name.start, set()).add(name.form)
    for name in names:
        there = forms[name.start]
        earlier = {PACKED: {RAW}, MOVED: {RAW}}.get(name.form, set())
        if there & earlier or (name.form == PACKED and MOVED in there):
            (directory / packed_name(*name)).unlink(missing_ok=True)
        elif name.form == PACKED:
            yield Piece(key, name.start, name.size)
        elif name.form == RAW and name.start != last:
            with contextlib.suppress(FileNotFoundError):
                size = (directory / file_name(*name[:3])).stat().st_size
                if size:
                    yield Piece(key, name.start, size)
