"""Write files of the local prefix. An unfinished file never hides another region's."""

import contextlib
import io
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from rigging.filesystem.atomic import TEMPORARY_PREFIX
from rigging.prefixes.prefix_store import PrefixStore, StoreKind


@contextlib.contextmanager
def whole(store: PrefixStore, relative: str) -> Iterator[str]:
    """Yield a path to write to, renamed to the file at the end of the block. Buckets write objects atomically."""
    own = store.path(relative)
    if store.kind is not StoreKind.LOCAL:
        yield own
        return
    temporary = _beside(own)
    try:
        yield temporary
        os.replace(temporary, own)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def open_whole(path: str, mode: str, autocommit: bool) -> Any:
    """Open a local file for writing from its start. It gets its name when it is closed.

    Args:
        path: The file.
        mode: As for `open`, binary, with "w" or "x".
        autocommit: Whether closing it commits it. If False, `commit` or `discard` of the opened file's `raw` must
            follow.
    """
    raw = WholeFile(os.path.realpath(path), mode, autocommit)
    return _WholeRandom(raw) if "+" in mode else _WholeWriter(raw)


class WholeFile(io.FileIO):
    """A local file that gets its name when it is closed, unless a write failed or its block raised.

    Args:
        path: The file.
        mode: As in `open`.
        autocommit: As in `open_whole`.
    """

    def __init__(self, path: str, mode: str, autocommit: bool) -> None:
        self._path = path
        self._temporary = _beside(path)
        self._autocommit = autocommit
        self.is_broken = False
        super().__init__(self._temporary, "x+" if "+" in mode else "x")
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(self.fileno(), stat.S_IMODE(os.stat(path).st_mode))

    def write(self, data: Any, /) -> int:
        """Write `data`. After one failure the file is never committed."""
        try:
            return super().write(data)
        except OSError:
            self.is_broken = True
            raise

    def close(self) -> None:
        """Close the file, and commit it unless the caller does."""
        if self.closed:
            return
        super().close()
        if self.is_broken:
            self.discard()
        elif self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Rename the file to its final name."""
        os.replace(self._temporary, self._path)

    def discard(self) -> None:
        """Delete the written file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)


class _Buffered:
    """A buffered `WholeFile`, with the methods that fsspec's transactions call."""

    raw: Any
    close: Callable[[], None]

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.raw.is_broken |= kind is not None
        self.close()

    def commit(self) -> None:
        """Rename the file to its final name."""
        self.raw.commit()

    def discard(self) -> None:
        """Delete the written file."""
        self.raw.discard()


class _WholeWriter(_Buffered, io.BufferedWriter):
    """A `WholeFile` for writing."""


class _WholeRandom(_Buffered, io.BufferedRandom):
    """A `WholeFile` that can also be read."""


def _beside(path: str) -> str:
    return os.path.join(os.path.dirname(path), f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
