"""Finds the pieces of logs that were moved to the remote state again, when the notes of where they are are lost.

The notes lie beside the logs, on the controller's disk. The objects' names say everything that a note does, so one
listing of the remote `logs/` is enough. It is made once for a state directory, before the controller serves: a worker
that comes back then goes on with its attempt's log where the moved pieces end.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from iris.controller.logs.names import MOVED, PACKED, LogFileName, parse_name
from iris.controller.logs.remote import FOLDER, RemotePieces
from iris.controller.logs.store import LogKey, LogStore
from rigging.filesystem import write_bytes_atomic

logger = logging.getLogger(__name__)

_LISTED: Final = "logs-listed"
"""Beside the directory of the logs: the remote state in which pieces were looked for."""
_SALT: Final = re.compile(r"(.+)-[0-9a-f]{8}")


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
        names: Below the remote state directory: `logs/<user>/<job>/~<index>.<attempt>.<offset>-<size>.zst-<salt>`.
    """
    for name in names:
        folder, _, file = name.rpartition("/")
        salted = _SALT.fullmatch(file)
        parsed = None if salted is None else parse_name(salted[1])
        if parsed is None or parsed.form != PACKED or not folder.startswith(f"{FOLDER}/"):
            continue
        yield RemotePiece((folder.removeprefix(FOLDER), parsed.task, parsed.attempt), parsed.start, parsed.size, name)


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
    names = (parse_name(path.name) for path in place.directory.glob(f"~{key[1]}.{key[2]}.*"))
    here = [(name.start, _size(store, key, name)) for name in names if name is not None]
    missing = missing_pieces(pieces, here)
    if missing:
        place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for piece in missing:
        write_bytes_atomic(place.packed(piece.start, piece.size, MOVED), piece.name.encode(), durable=True)
    return len(missing)


def _size(store: LogStore, key: LogKey, name: LogFileName) -> int:
    return name.size if name.size >= 0 else store.place(key).raw(name.start).stat().st_size
