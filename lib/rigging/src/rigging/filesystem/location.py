"""Find the local path of a URL, and add paths to storage errors, which often say only "Forbidden"."""

import errno
import os
import re

from rigging.errors import MarinError

Url = str | os.PathLike[str]

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]+):/{0,2}")
# An empty, `.` or `..` part of a path.
_UNRESOLVED = re.compile(r"/(?:\.{0,2})(?:/|\Z)")
_LOCAL_SCHEMES = frozenset({"file", "local"})

#: Protocols whose writes of one object are seen whole or not at all.
OBJECT_STORE_PROTOCOLS = frozenset({"gs", "gcs", "s3", "s3a", "abfs", "abfss", "az", "adl", "oci", "r2", "memory"})


def url_scheme(url: Url) -> str:
    """Return the scheme of `url`: "file" for a plain path, the outermost one for a chain such as
    "simplecache::gs://b".
    """
    text = os.fspath(url)
    if text.startswith(("/", "~", ".")):
        return "file"
    if "::" in text:
        return text.split("::", 1)[0]
    match = _SCHEME.match(text)
    if match is None or ("://" not in text and match["scheme"] not in _LOCAL_SCHEMES):
        return "file"
    return "file" if match["scheme"].lower() in _LOCAL_SCHEMES else match["scheme"].lower()


def local_path(url: Url) -> str | None:
    """Return the absolute path if `url` is a plain path (also relative) or a file:// URL, else None.

    Percent signs stay as they are, and a leading ~ is the home directory, as in fsspec.
    """
    text = os.fspath(url)
    # What most paths are: nothing in it is to be resolved.
    if text.startswith("/") and not _UNRESOLVED.search(text):
        return text
    if url_scheme(text) != "file":
        return None
    match = _SCHEME.match(text)
    if match is not None and match["scheme"].lower() in _LOCAL_SCHEMES:
        text = text[match.end() :]
        if match.group().endswith(":/"):
            text = "/" + text
    return os.path.abspath(os.path.expanduser(text))


def path_in(directory: Url, name: str) -> str:
    """Return `os.path.join(directory, name)` for a relative name, in a third of the time."""
    text = os.fspath(directory)
    return f"{text}/{name}" if text[-1:] not in ("", "/") else text + name


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
