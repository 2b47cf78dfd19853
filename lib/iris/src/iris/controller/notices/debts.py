"""Notices of ends that are still to be delivered: a name for each, from the job's submission until its delivery."""

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
    """Names of deliveries that are owed. Used in one event loop; never raises for lack of a place."""

    def names(self) -> set[str]:
        """All that are owed."""
        ...

    def owe(self, name: str) -> None:
        """One is owed; repeating it changes nothing."""
        ...

    def settle(self, name: str) -> None:
        """One is owed no more."""
        ...

    def flush(self) -> None:
        """Write what is not written yet."""
        ...


class FileDebts:
    """A small file for each, which costs less than a commit.

    Args:
        directory: Of the files; made when there is something to keep.
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
    """Keeps names; a write has survived a loss of power when it returns."""

    def save_notices(self, owed: Sequence[str], settled: Sequence[str]) -> None: ...

    def load_notices(self) -> list[str]: ...


class StoredDebts:
    """Rows of the database, which goes off the machine with all else that is committed there.

    What comes in one turn of the loop is one commit.

    Args:
        store: Of the rows.
        soon: Calls a function in the next turn of the loop.
        files: Of releases that had only these, or of a time without a remote state.
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
