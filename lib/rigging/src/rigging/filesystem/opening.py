"""Opening URLs: the one way in which marin code reaches fsspec.

Everything that reads or writes storage goes through these three functions, so that the rules about regions and
budgets have a single door to stand at.
"""

import os
from typing import TYPE_CHECKING, Any

from rigging.filesystem.location import OBJECT_STORE_PROTOCOLS, Url, url_scheme

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from fsspec.core import OpenFile


def open_url(url: Url, mode: str = "rb", **kwargs: Any) -> "OpenFile":
    """Open a plain path, file:// or any fsspec URL; use the result in a `with` statement.

    Missing parent directories are made when writing to a filesystem that has directories.

    Args:
        url: Where.
        mode: As for the builtin `open`.
        kwargs: Passed on to `fsspec.open` (compression, encoding, storage options).

    Raises:
        FileNotFoundError: On entering the `with`, when reading what does not exist.
    """
    import fsspec

    # Object stores have no directories; asking them to make one costs a round trip and does nothing.
    kwargs.setdefault("auto_mkdir", url_scheme(url) not in OBJECT_STORE_PROTOCOLS)
    return fsspec.open(os.fspath(url), mode, **kwargs)


def url_to_fs(url: Url, **kwargs: Any) -> "tuple[AbstractFileSystem, str]":
    """Return the filesystem that `url` is on and the path there, as `fsspec.core.url_to_fs` does."""
    from fsspec.core import url_to_fs as fsspec_url_to_fs

    fs, path = fsspec_url_to_fs(os.fspath(url), **kwargs)
    return fs, path


def filesystem(protocol: str, **kwargs: Any) -> "AbstractFileSystem":
    """Return the filesystem of `protocol` ("file", "memory", "gs", "s3", ...), as `fsspec.filesystem` does."""
    import fsspec

    return fsspec.filesystem(protocol, **kwargs)
