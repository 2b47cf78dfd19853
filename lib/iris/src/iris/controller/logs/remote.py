"""Pieces of logs in the remote state: put there, fetched, and found again when it is not known any more where they are.

The notes of where they are lie beside the logs, on the controller's disk. The objects' names say everything that a note
does, so one listing of the remote `logs/` is enough to write those that are missing. It is made once for a state
directory, before the controller serves: a worker that comes back then goes on with its attempt's log where the moved
pieces end.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from iris.controller.logs.names import FOLDER, MOVED, LogFileName, parse_object_name
from iris.controller.logs.pieces import AHEAD, Fetch, LogPlace
from iris.controller.logs.store import LogKey, LogStore
from rigging.filesystem import read_bytes_or_none, url_to_fs, write_bytes_atomic

logger = logging.getLogger(__name__)

_MOST_KEPT: Final = 16
_LISTED: Final = "logs-listed"
"""Beside the directory of the logs: the remote state in which pieces were looked for."""


class RemotePieces:
    """Objects below `logs/` of a remote state directory: any fsspec URL. Calls may take as long as the storage does."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def put(self, name: str, data: bytes) -> None:
        """Write an object; it is there as a whole when this returns. Raises what the storage raises."""
        write_bytes_atomic(f"{self.url}/{name}", data, durable=True)

    def get(self, name: str) -> bytes | None:
        """The content of an object; None: there is none. Raises what the storage raises."""
        return read_bytes_or_none(f"{self.url}/{name}")

    def names(self) -> list[str]:
        """The names of all objects there are below `logs/`. Raises what the storage raises."""
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
        """Remove an object, if it is there. Raises what the storage raises."""
        if not name.startswith(FOLDER + "/") or ".." in name.split("/"):
            return
        filesystem, root = url_to_fs(self.url)
        try:
            filesystem.rm_file(f"{root}/{name}")
        except FileNotFoundError:
            return


class ReadAhead:
    """Fetches objects, those that were announced before they are asked for. Used by one thread.

    What is announced when many are fetched or wait to be taken is fetched when it is asked for.

    Args:
        fetch: Gives an object by its name; called in several threads at once.
        width: Objects that are fetched at a time.
        most: Objects that were fetched, or are being fetched, and not asked for yet.
    """

    def __init__(self, fetch: Fetch, width: int = AHEAD, most: int = _MOST_KEPT) -> None:
        self._fetch = fetch
        self._most = most
        self._coming: dict[str, Future[bytes | None]] = {}
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="log-pieces")

    def expect(self, names: Iterable[str]) -> None:
        """Begin to fetch objects that will be asked for soon, in this order."""
        for name in names:
            if name not in self._coming and len(self._coming) < self._most:
                self._coming[name] = self._threads.submit(self._fetch, name)

    def get(self, name: str) -> bytes | None:
        """The content of an object; None: there is none. Waits for it. Raises what `fetch` raises."""
        coming = self._coming.pop(name, None)
        return self._fetch(name) if coming is None else coming.result()

    def close(self) -> None:
        """Fetch nothing more; does not wait for what is being fetched."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class RemotePiece(NamedTuple):
    """A piece in the remote state: which bytes of which log, and its object's name."""

    key: LogKey
    start: int
    size: int
    name: str


def recover_notes(store: LogStore, remote: RemotePieces, is_known: Callable[[LogKey], bool]) -> int:
    """Write the notes that are missing; return how many. Does nothing where it was done before.

    A storage that does not answer is told in the log, and asked again at the next start.

    Args:
        store: The logs; nothing of them has been read yet.
        remote: Where pieces were moved.
        is_known: Whether there is such an attempt. Pieces of others stay where they are, without a note.
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
    """The pieces that objects of these names are; other objects are passed over.

    Args:
        names: Below the remote state directory (`iris.controller.logs.names`).
    """
    for name in names:
        if (found := parse_object_name(name)) is not None:
            job_id, piece = found
            yield RemotePiece((job_id, piece.task, piece.attempt), piece.start, piece.size, name)


def missing_pieces(pieces: Iterable[RemotePiece], here: Iterable[tuple[int, int]]) -> list[RemotePiece]:
    """Those pieces of one log of which no byte is here already, none twice, in order.

    A piece may have been moved twice, and a log that began anew is cut otherwise; its bytes are the same.

    Args:
        pieces: In the remote state.
        here: Offset and size of what there is of the log.
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
    """The names of objects that are still to be removed."""
    try:
        return {note.read_text() for note in store.trash.iterdir()}
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
