"""Places that this process may no longer write to, because another holder of their lease may be writing there.

The holder of a lease puts a fence at its place. `open_url`, `atomic_write` and `mirror://` check it before each write.
The fence uses this process's own clock and makes no request.
"""

import os
from collections.abc import Callable

from rigging.filesystem.location import Url, local_path

Fence = Callable[[str], None]
"""Called with the URL to write. Raises `rigging.distributed_lock.LeaseLostError` when the lease is lost."""

_fences: dict[str, Fence] = {}


def put_fence(place: Url, fence: Fence) -> None:
    """Call `fence` before each write at or below a place. It replaces an earlier fence there."""
    _fences[_key(place)] = fence


def remove_fence(place: Url, fence: Fence) -> None:
    """Remove a fence, unless another one has replaced it."""
    if _fences.get(_key(place)) == fence:
        del _fences[_key(place)]


def check_writable(url: Url) -> None:
    """Refuse to write at or below a place whose lease this process has lost. Raise the fence's error."""
    if not _fences:
        return
    place = _key(url)
    while place:
        fence = _fences.get(place)
        if fence is not None:
            fence(os.fspath(url))
        place = place.rpartition("/")[0]


def _key(place: Url) -> str:
    if type(place) is str and place.startswith("/") and "//" not in place and "/." not in place:
        return place.rstrip("/")  # nearly every place; the rest takes five times as long
    path = local_path(place)
    return (os.fspath(place) if path is None else os.path.abspath(path)).rstrip("/")
