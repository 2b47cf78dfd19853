"""Files of the local prefix in the making: a part of one never hides what another region has."""

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
    """Yield a path to write to, of which the file is made at the end of the block. Buckets make whole objects."""
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
    """Open a local file for writing from its start; it has its name once it is closed.

    Args:
        path: The file.
        mode: As for `open`, binary, with "w" or "x".
        autocommit: Whether closing it is enough; False: `commit` or `discard` of the opened file's `raw` follows.
    """
    raw = WholeFile(os.path.realpath(path), mode, autocommit)
    return _WholeRandom(raw) if "+" in mode else _WholeWriter(raw)


class WholeFile(io.FileIO):
    """A local file that gets its name when it is closed, unless a write to it failed or its block raised.

    Args:
        path: The file.
        mode: As for `open`.
        autocommit: As for `open_whole`.
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
        """Write; what failed once is not committed."""
        try:
            return super().write(data)
        except OSError:
            self.is_broken = True
            raise

    def close(self) -> None:
        """Close, and commit unless that is another's task."""
        if self.closed:
            return
        super().close()
        if self.is_broken:
            self.discard()
        elif self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Give the file its name."""
        os.replace(self._temporary, self._path)

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)


class _Buffered:
    """A buffered `WholeFile`, with what fsspec's transactions call."""

    raw: Any
    close: Callable[[], None]

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.raw.is_broken |= kind is not None
        self.close()

    def commit(self) -> None:
        """See `WholeFile.commit`."""
        self.raw.commit()

    def discard(self) -> None:
        """See `WholeFile.discard`."""
        self.raw.discard()


class _WholeWriter(_Buffered, io.BufferedWriter):
    """For writing."""


class _WholeRandom(_Buffered, io.BufferedRandom):
    """For reading back, too."""


def _beside(path: str) -> str:
    return os.path.join(os.path.dirname(path), f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
