"""Pending notices, by name, from the job's submission until the delivery."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from rigging.errors import Unavailable

logger = logging.getLogger(__name__)

_LOST: Final = "a notice is only kept in memory, and is lost with this controller: %s"


class Debts(Protocol):
    """The names of pending deliveries. Use it in one event loop. It never raises on a full disk."""

    def names(self) -> set[str]:
        """Return all pending names."""
        ...

    def owe(self, name: str) -> None:
        """Add a pending delivery. Idempotent."""
        ...

    def settle(self, name: str) -> None:
        """Remove a delivery."""
        ...

    def flush(self) -> None:
        """Write unwritten changes."""
        ...


class FileDebts:
    """Pending deliveries as small files, which cost less than a commit.

    Args:
        directory: The directory of the files, created on first use.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> set[str]:
        return {path.name for path in self._directory.glob("*")} if self._directory.is_dir() else set()

    def owe(self, name: str) -> None:
        path = self._directory / name
        if path.exists():
            return
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            logger.warning(_LOST, error)

    def settle(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._directory / name).unlink(missing_ok=True)

    def flush(self) -> None:
        return  # each is written at once


class NoticeStore(Protocol):
    """Stores names. A write is durable when it returns."""

    def save_notices(self, owed: Sequence[str], settled: Sequence[str]) -> None: ...

    def load_notices(self) -> list[str]: ...


class StoredDebts:
    """Pending deliveries as rows of the database, which are replicated like all commits.

    All changes in one turn of the event loop are one commit.

    Args:
        store: The store of the rows.
        soon: Calls a function in the next turn of the event loop.
        files: Pending deliveries in files, from an earlier release or a time without a remote state.
    """

    def __init__(self, store: NoticeStore, soon: Callable[[Callable[[], None]], object], files: FileDebts) -> None:
        self._store = store
        self._soon = soon
        self._files = files
        self._kept: set[str] = set()  # in the database, or will be at the next turn
        self._pending: dict[str, bool] = {}

    def names(self) -> set[str]:
        self._kept = set(self._store.load_notices())
        return self._kept | self._files.names()

    def owe(self, name: str) -> None:
        if name not in self._kept:
            self._kept.add(name)
            self._note(name, True)

    def settle(self, name: str) -> None:
        self._files.settle(name)
        if name in self._kept:
            self._kept.discard(name)
            self._note(name, False)

    def _note(self, name: str, is_owed: bool) -> None:
        if not self._pending:
            self._soon(self.flush)
        self._pending[name] = is_owed

    def flush(self) -> None:
        pending, self._pending = self._pending, {}
        if not pending:
            return
        try:
            self._store.save_notices(_of(pending, True), _of(pending, False))
        except Unavailable as error:
            logger.warning(_LOST, error)


def _of(pending: dict[str, bool], is_owed: bool) -> Sequence[str]:
    names: Iterable[str] = (name for name, owed in pending.items() if owed is is_owed)
    return sorted(names)
