"""A log of numbered lines, for tests of a log's files."""

from typing import Final

from iris.controller.logs.keeper import LogKeeper, leftovers
from iris.controller.logs.remote import RemotePieces
from iris.controller.logs.store import LogKey, LogStore
from iris.rpc.logformat import encode

T: Final = 1_790_000_000_000
KEY: Final[LogKey] = ("/ann/a", 0, 0)
LIMIT: Final = 2**21
"""The size limit with which a log is split into files of 128 KiB."""


def numbered_lines(count: int, first: int = 0) -> bytes:
    """Return numbered records: the text contains the number, and the time is `T` plus the number."""
    return b"".join(encode(False, T + i, b"line %d " % i + b"z" * 40) for i in range(first, first + count))


def fill(store: LogStore, count: int, first: int = 0, key: LogKey = KEY) -> None:
    for begin in range(first, first + count, 500):
        store.append(key, store.size(key), numbered_lines(min(500, first + count - begin), begin))


def told(store: LogStore, key: LogKey = KEY) -> list[int]:
    """Return the numbers of the readable lines, with the sizes of gaps in between."""
    return [record.hole or int(record.data.split()[1]) for record in store.read(key, 0)]


def keeper_of(store: LogStore, remote: RemotePieces | None = None) -> LogKeeper:
    """Return a keeper with short retry delays."""
    return LogKeeper(store, remote, lambda call: call(), retry_s=(0.01, 0.05))


def tend_all(store: LogStore, remote: RemotePieces | None = None) -> None:
    """Pack all finished files, and move them if there is a destination."""
    keeper = keeper_of(store, remote)
    for piece in list(leftovers(store.root)):
        keeper.tend(piece)
