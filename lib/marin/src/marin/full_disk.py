"""Messages about a disk that is full, or that this user may not write to."""

from __future__ import annotations

import errno
import os
import shutil
from typing import Final

from rigging.errors import Denied
from rigging.filesystem import local_path
from rigging.text.quantities import format_size

_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def full_disk(error: BaseException, path: str) -> str | None:
    """Return a message if an error means that the disk of a path is full; None for any other error.

    Args:
        error: The error.
        path: A path or URL on the disk, existing or not.
    """
    local = local_path(path)
    if not isinstance(error, OSError) or error.errno not in _FULL or local is None:
        return None
    while not os.path.exists(local) and os.path.dirname(local) != local:
        local = os.path.dirname(local)
    if error.errno == errno.EDQUOT:
        return f"the quota of the disk of {local} is used up"
    try:
        usage = shutil.disk_usage(local)
    except OSError:
        return f"the disk of {local} is full"
    return f"the disk of {local} is full: {format_size(usage.free)} of {format_size(usage.total)} are free"


def without_right(error: BaseException, path: str) -> Denied | None:
    """Return an error that says where this user may not write; None if `error` means something else.

    Args:
        error: The error of a write.
        path: The output path.
    """
    if not isinstance(error, OSError) or error.errno not in _REFUSED or local_path(path) is None:
        return None
    return Denied(
        f"{error.filename or path} cannot be written: {error.strerror}; give MARIN_PREFIX or --prefix a place that "
        "this user may write to"
    )
