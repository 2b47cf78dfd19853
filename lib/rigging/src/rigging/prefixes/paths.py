"""Paths of the mirror, which are relative to the prefix and never leave it, and the names that listings hide."""

import os
import re
from collections.abc import Iterable

from rigging.errors import InvalidRequest
from rigging.filesystem.atomic import TEMPORARY_PREFIX
from rigging.filesystem.prefix_table import canonical_url, local_prefix, mirror_prefixes

PROTOCOL = "mirror"
#: Directory below a prefix that holds the mirror's own files (locks, parts of copies under way).
PRIVATE_DIRECTORY = ".marin-mirror"
LOCK_SUFFIX = ".lock"
FENCE_SUFFIX = ".lock.fence"

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://|(?:file|local):", re.IGNORECASE)
# Nothing in here needs a closer look: no empty, "." or ".." component, no scheme.
_PLAIN = re.compile(r"(?:(?!\.{1,2}(?:/|\Z))[^/:\0]+(?:/(?=[^/])|\Z))+")


def relative_path(path: str | os.PathLike[str]) -> str:
    """Return `path` relative to the prefix, without slashes at either end; "" is the prefix itself.

    A path is relative, or `mirror://` with a relative one, or either with the full current or a configured prefix
    (`mirror://gs://marin-us-central2/a`).

    Raises:
        InvalidRequest: The path is another absolute path or URL, or has a `..`.
    """
    text = path if type(path) is str else os.fspath(path)
    if text.startswith("mirror:"):
        text = text.removeprefix("mirror:").removeprefix("//")
    if _PLAIN.fullmatch(text):
        return text
    if "\0" in text:
        raise InvalidRequest(f"path {text!r} has a NUL byte")
    if ".." in text.split("/"):
        raise InvalidRequest(f"path {text!r}: '..' is refused, as it may leave the prefix; write the path without it")
    if text.startswith("/") or _URL.match(text):
        text = _below_a_prefix(text)
    return "/".join(part for part in text.split("/") if part not in ("", "."))


def is_hidden(name: str) -> bool:
    """Return whether a file or directory of this name (last component) is internal to the mirror."""
    return name == PRIVATE_DIRECTORY or name.startswith(TEMPORARY_PREFIX) or name.endswith(FENCE_SUFFIX)


def is_private(path: str) -> bool:
    """Return whether any component of a relative path is hidden."""
    return any(is_hidden(name) for name in path.split("/"))


def without_hidden(paths: Iterable[str]) -> list[str]:
    """Return the paths that users should see, in order: without temporary files, leases and their fencing numbers.

    A file `x.lock` is a lease if `x.lock.fence` exists beside it. Other lock files (such as uv.lock) are data.
    """
    every = list(paths)
    if not any(".marin-" in path or ".lock" in path for path in every):
        return every
    leases = {path.removesuffix(".fence") for path in every if path.endswith(FENCE_SUFFIX)}
    return [path for path in every if path not in leases and not is_private(path)]


def _below_a_prefix(text: str) -> str:
    url = canonical_url(text)
    prefixes = {local_prefix().url, *(prefix.url for prefix in mirror_prefixes())}
    for prefix in sorted(prefixes, key=len, reverse=True):
        if url == prefix:
            return ""
        start = prefix if prefix.endswith("/") else f"{prefix}/"
        if url.startswith(start):
            return url[len(start) :]
    raise InvalidRequest(
        f"path {text!r} is absolute and under no prefix of the mirror; "
        f"give a relative path, or one below {', '.join(sorted(prefixes))}"
    )
