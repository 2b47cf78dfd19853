"""The result of `open_url`: an fsspec OpenFile that can also be used as the open file itself.

This module imports fsspec. `open_url` imports it on first use.
"""

import io
from collections.abc import Iterator
from typing import IO, Any, AnyStr, Final, Generic

from fsspec.core import OpenFile

_OF_FILES: Final = frozenset(name for kind in (io.TextIOWrapper, io.BufferedRandom) for name in dir(kind))


class UrlFile(OpenFile, Generic[AnyStr]):  # type: ignore[misc]  # fsspec has no types
    """A file at a URL. It is opened by `with`, by `open()`, or by the first use of a file method.

    Each `with` and each `open()` opens the file anew, like fsspec. Used as a file (`json.load(open_url(path))`), it is
    opened once, and closed by `close()` or with its last reference. Pickling stores only the location.
    """

    _is_closed = False

    @classmethod
    def of(cls, file: OpenFile) -> "UrlFile[Any]":
        """Return a `UrlFile` for the same location, not yet opened."""
        return cls(*file.__reduce__()[1])

    def __reduce__(self) -> tuple[Any, ...]:
        return UrlFile, super().__reduce__()[1]

    def __enter__(self) -> IO[AnyStr]:
        opened: IO[AnyStr] = super().__enter__()
        return opened

    def open(self) -> IO[AnyStr]:
        """Open the file without `with`. The caller closes the result."""
        return self.__enter__()

    def close(self) -> None:
        """Close the file if it is open."""
        super().close()
        self._is_closed = True

    @property
    def closed(self) -> bool:
        """Whether the file was closed; False before it is opened."""
        return not self.fobjects and self._is_closed

    def read(self, size: int = -1) -> AnyStr:
        """Read `size` characters or bytes, or all that remain."""
        return self._file.read(size)

    def readline(self, size: int = -1) -> AnyStr:
        """Read one line."""
        return self._file.readline(size)

    def write(self, data: AnyStr) -> int:
        """Write, and return the number of characters or bytes."""
        return self._file.write(data)

    def __iter__(self) -> Iterator[AnyStr]:
        return iter(self._file)

    def __next__(self) -> AnyStr:
        return next(self._file)

    @property
    def _file(self) -> IO[AnyStr]:
        if self.closed:
            raise ValueError(f"{self.path} is closed: open it again with open_url")
        if not self.fobjects:
            self.__enter__()
        file: IO[AnyStr] = self.fobjects[-1]
        return file

    def __getattr__(self, name: str) -> Any:
        # Whoever looks at an object (a debugger, a notebook) must not open it: opening to write empties a file.
        if name.startswith("_") or name not in _OF_FILES:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self._file, name)
