"""Writes, fetches and removes pieces of logs in the remote state, and restores lost notes about them.

Notes beside the logs on the controller's disk contain the locations. The objects' names contain the same information,
so one listing of the remote `logs/` is enough to restore missing notes. The controller restores them once per state
directory, before it serves, so that a returning worker continues its attempt's log at the end of the moved pieces.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from iris.controller.logs.names import FOLDER, MOVED, LogFileName, parse_object_name, read_moved_note
from iris.controller.logs.pieces import AHEAD, Fetch, LogPlace
from iris.controller.logs.store import LogKey, LogStore
from rigging.filesystem import read_bytes_or_none, url_to_fs, write_bytes_atomic

logger = logging.getLogger(__name__)

_MOST_KEPT: Final = 16
_LISTED: Final = "logs-listed"
"""A file next to the logs' directory: the remote state whose pieces were already listed."""


class RemotePieces:
    """Objects below `logs/` of a remote state directory (any fsspec URL). Calls block on the storage."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def put(self, name: str, data: bytes) -> None:
        """Write an object atomically. Raise the storage's errors."""
        write_bytes_atomic(f"{self.url}/{name}", data, durable=True)

    def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if it does not exist. Raise the storage's errors."""
        return read_bytes_or_none(f"{self.url}/{name}")

    def names(self) -> list[str]:
        """Return the names of all objects below `logs/`. Raise the storage's errors."""
        filesystem, root = url_to_fs(self.url)
        filesystem.invalidate_cache()
        try:
            found = filesystem.find(f"{root}/{FOLDER}")
        except FileNotFoundError:
            return []
        # Some storages give names with a leading slash, and some do not.
        above = root.strip("/") + "/"
        return [name.lstrip("/").removeprefix(above) for name in found]

    def remove(self, name: str) -> None:
        """Remove an object, if it exists. Raise the storage's errors."""
        if not name.startswith(FOLDER + "/") or ".." in name.split("/"):
            return
        filesystem, root = url_to_fs(self.url)
        try:
            filesystem.rm_file(f"{root}/{name}")
        except FileNotFoundError:
            return


class ReadAhead:
    """Fetches objects, announced ones in advance. Use it in one thread.

    Announced objects beyond the limits are fetched on request.

    Args:
        fetch: Fetches an object by name, in several threads concurrently.
        width: Number of concurrent fetches.
        most: Maximum number of prefetched objects that were not yet requested.
    """

    def __init__(self, fetch: Fetch, width: int = AHEAD, most: int = _MOST_KEPT) -> None:
        self._fetch = fetch
        self._most = most
        self._coming: dict[str, Future[bytes | None]] = {}
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="log-pieces")

    def expect(self, names: Iterable[str]) -> None:
        """Start fetching objects that will be requested soon, in this order."""
        for name in names:
            if name not in self._coming and len(self._coming) < self._most:
                self._coming[name] = self._threads.submit(self._fetch, name)

    def get(self, name: str) -> bytes | None:
        """Wait for an object and return its content; None if it does not exist. Raise the errors of `fetch`."""
        coming = self._coming.pop(name, None)
        return self._fetch(name) if coming is None else coming.result()

    def close(self) -> None:
        """Stop fetching, without waiting for running fetches."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class RemotePiece(NamedTuple):
    """A piece in the remote state: its log, its range, and its object's name."""

    key: LogKey
    start: int
    size: int
    name: str


def recover_notes(store: LogStore, remote: RemotePieces, is_known: Callable[[LogKey], bool]) -> int:
    """Write missing notes and return their number. Does nothing after the first success.

    If the storage does not answer, log a warning; the next start tries again.

    Args:
        store: The logs, before their first use.
        remote: The storage of moved pieces.
        is_known: Returns whether an attempt exists. Pieces of unknown attempts get no note.
    """
    listed = store.root.with_name(_LISTED)
    try:
        if listed.read_text() == remote.url:
            return 0
    except (OSError, UnicodeDecodeError):
        pass  # never done here
    try:
        dropped = _dropped(store)
        found = [piece for piece in parse_pieces(remote.names()) if piece.name not in dropped and is_known(piece.key)]
    # Storages raise what they like; whatever it is, logs begin anew rather than the controller not at all.
    except Exception as error:
        logger.error("pieces of logs cannot be looked for in %s: %s: %s", remote.url, type(error).__name__, error)
        return 0
    written = sum(_note(store, key, pieces) for key, pieces in _by_log(found))
    listed.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_bytes_atomic(listed, remote.url.encode(), durable=True)
    if written:
        logger.warning("found %d pieces of logs in %s of which there were no notes", written, remote.url)
    return written


def parse_pieces(names: Iterable[str]) -> Iterator[RemotePiece]:
    """Return the pieces with these object names. Other objects are ignored.

    Args:
        names: Names below the remote state directory (`iris.controller.logs.names`).
    """
    for name in names:
        if (found := parse_object_name(name)) is not None:
            job_id, piece = found
            yield RemotePiece((job_id, piece.task, piece.attempt), piece.start, piece.size, name)


def missing_pieces(pieces: Iterable[RemotePiece], here: Iterable[tuple[int, int]]) -> list[RemotePiece]:
    """Return the pieces of one log that are missing here completely, in order without overlap.

    Pieces may overlap, because a piece may be moved twice and a restarted log is cut differently; their bytes are
    equal.

    Args:
        pieces: The pieces in the remote state.
        here: Offset and size of the existing parts of the log.
    """
    taken = [(start, start + size) for start, size in here]
    chosen = []
    for piece in sorted(pieces, key=lambda item: (item.start, -item.size, item.name)):
        end = piece.start + piece.size
        if piece.size > 0 and all(end <= first or last <= piece.start for first, last in taken):
            taken.append((piece.start, end))
            chosen.append(piece)
    return chosen


def _dropped(store: LogStore) -> set[str]:
    """Return the names of objects that are not removed yet."""
    try:
        return {read_moved_note(note)[0] for note in store.trash.iterdir()}
    except FileNotFoundError:
        return set()


def _by_log(pieces: Iterable[RemotePiece]) -> Iterator[tuple[LogKey, list[RemotePiece]]]:
    logs: dict[LogKey, list[RemotePiece]] = {}
    for piece in pieces:
        logs.setdefault(piece.key, []).append(piece)
    yield from logs.items()


def _note(store: LogStore, key: LogKey, pieces: list[RemotePiece]) -> int:
    place = store.place(key)
    missing = missing_pieces(pieces, ((name.start, _size(place, name)) for name in place.names()))
    if missing:
        place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for piece in missing:
        write_bytes_atomic(place.packed(piece.start, piece.size, MOVED), piece.name.encode(), durable=True)
    return len(missing)


def _size(place: LogPlace, name: LogFileName) -> int:
    return name.size if name.size >= 0 else place.raw(name.start).stat().st_size
