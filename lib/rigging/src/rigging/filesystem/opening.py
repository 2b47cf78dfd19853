"""Open URLs. All marin code reaches fsspec through this module.

All storage access goes through these three functions, so that the rules about regions and budgets apply in one place:
object stores get the cross-region guard, other filesystems are those of fsspec. Chains such as "simplecache::gs://b/x"
and "zip://a::gs://b/x.zip" contain the guard. Chains that cannot contain it are refused if they would cross regions.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from rigging.errors import Denied
from rigging.extras import needing
from rigging.filesystem.fences import check_writable
from rigging.filesystem.location import OBJECT_STORE_PROTOCOLS, Url, url_scheme
from rigging.filesystem.region_check import REGIONAL_PROTOCOLS

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from rigging.filesystem.guard import CrossRegionGuardedFS
    from rigging.filesystem.url_file import UrlFile

_TAKES_A_FILESYSTEM = frozenset({"blockcache", "cached", "dir", "filecache", "simplecache"})
_CACHES = _TAKES_A_FILESYSTEM - {"dir"}
_TAKES_A_FILE = frozenset({"tar", "zip"})
_EXTRAS: Final = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}
_OF_THE_FILE = ("compression", "encoding", "errors", "newline")

TextMode = Literal["r", "w", "a", "x", "rt", "wt", "at", "xt", "tr", "r+", "w+", "a+", "x+"]
BinaryMode = Literal["rb", "wb", "ab", "xb", "br", "bw", "r+b", "rb+", "w+b", "wb+", "a+b", "ab+", "x+b", "xb+"]


@overload
def open_url(url: Url, mode: BinaryMode = "rb", **kwargs: Any) -> "UrlFile[bytes]": ...


@overload
def open_url(url: Url, mode: TextMode, **kwargs: Any) -> "UrlFile[str]": ...


@overload
def open_url(url: Url, mode: str, **kwargs: Any) -> "UrlFile[Any]": ...


def open_url(url: Url, mode: str = "rb", **kwargs: Any) -> "UrlFile[Any]":
    """Open a plain path, file:// or any fsspec URL. Use the result in a `with` statement, or as a file.

    `with open_url(url) as file` closes it at the end. `json.load(open_url(url))` opens it at the first read.

    When writing to a filesystem with directories, missing parents are created.

    Args:
        url: The path or URL.
        mode: As in the builtin `open`.
        kwargs: Arguments of `fsspec.open` (compression, encoding, storage options).

    Raises:
        FileNotFoundError: On entering the `with`, or at the first read, if the file does not exist.
        LeaseLostError: On writing below the output of a step whose lease this process has lost.
        TransferBudgetExceeded: On reading bytes from another region that do not fit the budget.
    """
    import fsspec

    from rigging.filesystem.url_file import UrlFile

    if mode[:1] != "r" or "+" in mode:
        check_writable(url)
    if _stored_at(url) in REGIONAL_PROTOCOLS:
        of_the_file = {name: kwargs.pop(name) for name in _OF_THE_FILE if name in kwargs}
        fs, path = url_to_fs(url, **kwargs)
        return UrlFile(fs, path, mode, **{"encoding": "utf8", **of_the_file})
    # Object stores have no directories; asking them to make one costs a round trip and does nothing.
    kwargs.setdefault("auto_mkdir", url_scheme(url) not in OBJECT_STORE_PROTOCOLS)
    return UrlFile.of(fsspec.open(os.fspath(url), mode, **kwargs))


def url_to_fs(url: Url, **kwargs: Any) -> "tuple[AbstractFileSystem, str]":
    """Return the filesystem of `url` and the path there, like `fsspec.core.url_to_fs`.

    Raises:
        Denied: A chain of filesystems would read from another region without a charge.
        MissingExtra: The packages for this storage are not installed.
    """
    from fsspec.core import url_to_fs as fsspec_url_to_fs

    text = os.fspath(url)
    if _stored_at(url) not in REGIONAL_PROTOCOLS:
        fs, path = fsspec_url_to_fs(text, **kwargs)
        return fs, path
    if "::" in text:
        return _chain_to_fs(text, kwargs)
    with _needing(url_scheme(url)):
        fs, path = fsspec_url_to_fs(text, **kwargs)
    return _guarded(fs), path


def filesystem(protocol: str, **kwargs: Any) -> "AbstractFileSystem":
    """Return the filesystem of `protocol` ("file", "memory", "gs", "s3", ...), like `fsspec.filesystem`.

    Raises:
        Denied: A nested filesystem would read from another region without a charge.
    """
    import fsspec

    if protocol in REGIONAL_PROTOCOLS:
        return _store(protocol, kwargs)
    target = kwargs.get("target_protocol")
    if target in REGIONAL_PROTOCOLS:
        below = _store(target, kwargs.get("target_options") or {})
        if protocol in _TAKES_A_FILESYSTEM:
            rest = {name: value for name, value in kwargs.items() if name not in ("target_protocol", "target_options")}
            return fsspec.filesystem(protocol, fs=below, **rest)
        _refuse_if_crossing(below, str(kwargs.get("fo", "")), f"filesystem({protocol!r}, target_protocol={target!r})")
    return fsspec.filesystem(protocol, **kwargs)


def _stored_at(url: Url) -> str:
    """Return the scheme of the stored bytes: the last one of a chain."""
    return url_scheme(os.fspath(url).rpartition("::")[2])


def _guarded(fs: "AbstractFileSystem") -> "CrossRegionGuardedFS":
    from rigging.filesystem.guard import guarded

    return guarded(fs)


def _store(protocol: str, options: dict[str, Any]) -> "CrossRegionGuardedFS":
    """Return the guarded object store of a protocol."""
    import fsspec

    with _needing(protocol):
        return _guarded(fsspec.filesystem(protocol, **options))


def _needing(protocol: str) -> AbstractContextManager[None]:
    extra = _EXTRAS.get(protocol)
    return nullcontext() if extra is None else needing(extra, f"{protocol}://")


def _chain_to_fs(url: str, options: dict[str, Any]) -> "tuple[AbstractFileSystem, str]":
    import fsspec

    outer, _, stored = url.partition("::")
    kind, _, member = outer.partition("://")
    scheme = url_scheme(stored.rpartition("::")[2])
    rest = dict(options)
    if "::" not in stored and kind in _CACHES | _TAKES_A_FILE:
        below, path = url_to_fs(stored, **rest.pop(scheme, {}))
        own = {**rest.pop(kind, {}), **rest}
        if kind in _CACHES:
            return fsspec.filesystem(kind, fs=below, **own), path
        return fsspec.filesystem(kind, fo=fsspec.core.OpenFile(below, path, "rb"), **own), member
    below = _store(scheme, rest.get(scheme, {}))
    _refuse_if_crossing(below, stored.rpartition("::")[2], url)
    fs, path = fsspec.core.url_to_fs(url, **options)
    return fs, path


def _refuse_if_crossing(below: "CrossRegionGuardedFS", path: str, what: str) -> None:
    if below.is_cross_region(path):
        raise Denied(
            f"{what}: the data is in another region, and reads by this kind of chain cannot be charged to the "
            "transfer budget. Open the file itself, or mirror://path, which copies it once"
        )
