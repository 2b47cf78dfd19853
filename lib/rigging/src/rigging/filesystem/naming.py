"""Add the file to storage errors: client libraries often say only "Forbidden"."""

import errno
import os

from rigging.errors import MarinError

_NUMBERS = ((PermissionError, errno.EACCES), (FileExistsError, errno.EEXIST), (TimeoutError, errno.ETIMEDOUT))
#: Errors of writing when there is no room: then they are about the file that is written.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def name_path(error: OSError, path: str | os.PathLike[str]) -> None:
    """Add the path to `error` unless it names one. Errors about a missing file stay unchanged."""
    text = os.fspath(path)
    if isinstance(error, (MarinError, FileNotFoundError)) or error.filename is not None:
        return
    bare = text.partition("://")[2] or text
    if bare and bare in str(error):
        return
    if error.errno is None:
        error.strerror = str(error) or type(error).__name__
        error.errno = next((number for kind, number in _NUMBERS if isinstance(error, kind)), errno.EIO)
    error.filename = text
