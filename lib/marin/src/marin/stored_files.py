"""Files of any storage: their names, sizes and times, and files of an output that no step wrote."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from marin.output_files import INFO_FILE, STATUS_FILE, is_record
from rigging.errors import MarinError, Unavailable
from rigging.filesystem import TEMPORARY_PREFIX, local_path, url_to_fs

_SHOWN: Final = 8
#: What gives access to a bucket, by scheme.
ACCESS: Final = {
    "gs": "gcloud auth application-default login, and a role that writes to the bucket",
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or aws sso login, and a policy that writes to the bucket",
}
_NO_ACCESS: Final = re.compile(
    r"credential|forbidden|anonymous|denied|unauthorized|permission|\b40[13]\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a directory.

    Attributes:
        name: Its path relative to that directory.
        size: Size in bytes.
        modified: Modification time in seconds since the epoch; None if storage does not report it.
        changed: On disks the time of its last change, including renames; else `modified`.
    """

    name: str
    size: int
    modified: float | None
    changed: float | None


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Context manager: convert errors of storage libraries, which have many types, to marin's.

    Args:
        path: The path being read, for messages.

    Raises:
        Unavailable: Storage could not be read.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, MarinError):
        raise
    # An OSError of theirs names neither the storage nor the file.
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        access = ACCESS.get(path.partition("://")[0]) if _NO_ACCESS.search(words) else None
        raise Unavailable(f"{path} cannot be read: {words}{f'. It needs {access}' if access else ''}") from error


def names_in(directory: str) -> list[str]:
    """Return the names of the files and directories in a directory; [] if it does not exist."""
    local = local_path(directory)
    try:
        if local is not None:
            return os.listdir(local)
        with reading(directory):
            fs, remote = url_to_fs(directory)
            fs.invalidate_cache(remote)  # it keeps listings for as long as the process lives
            found = fs.ls(remote, detail=False)
            return [name for path in found if (name := str(path).rstrip("/").rpartition("/")[2])]
    except (FileNotFoundError, NotADirectoryError):
        return []


def files_below(directory: str) -> Iterator[StoredFile]:
    """Yield every file below a directory, in no particular order; none if it does not exist."""
    local = local_path(directory)
    if local is not None:
        yield from _local_files(local)
        return
    with reading(directory):
        fs, remote = url_to_fs(directory)
        fs.invalidate_cache(remote)
        found: dict[str, dict[str, Any]] = fs.find(remote, detail=True)
    start = len(remote.rstrip("/")) + 1
    for path, entry in found.items():
        modified = modified_of(entry)
        yield StoredFile(path[start:], int(entry.get("size") or 0), modified, modified)


def _local_files(root: str) -> Iterator[StoredFile]:
    pending = [("", root)]
    while pending:
        name, path = pending.pop()
        try:
            entries = list(os.scandir(path))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # removed meanwhile, or another's
        for entry in entries:
            below = f"{name}/{entry.name}" if name else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append((below, entry.path))
                continue
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat(follow_symlinks=False)
                yield StoredFile(below, found.st_size, found.st_mtime, found.st_ctime)


def modified_of(entry: dict[str, Any]) -> float | None:
    """Return a file's modification time in seconds since the epoch; None if storage does not report it."""
    value = entry.get("LastModified") or entry.get("updated") or entry.get("mtime") or entry.get("created")
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return datetime.datetime.fromisoformat(value).timestamp()
        return None
    if isinstance(value, (int, float)):
        return float(value)
    return value.timestamp() if isinstance(value, datetime.datetime) else None


def files_added(files: Sequence[StoredFile]) -> list[str]:
    """Return the sorted names of an output's files that changed after its step ended, so not through the step.

    Files of nested outputs do not count. Without a status file the result is empty. If the step's own record has a new
    name or new rights, all files may have new names or rights: then only new content counts.

    Args:
        files: All files below the output path, named relative to it.
    """
    ended = max((file.modified for file in files if file.name == STATUS_FILE and file.modified), default=None)
    if ended is None:
        return []
    are_touched = any(file.name == INFO_FILE and (file.changed or 0.0) > ended for file in files)
    inner = [file.name.removesuffix(f"/{INFO_FILE}") for file in files if file.name.endswith(f"/{INFO_FILE}")]
    return sorted(
        file.name
        for file in files
        if ((file.modified if are_touched else file.changed) or 0.0) > ended
        and is_of_output(file.name)
        and not any(_is_in(file.name, at) for at in inner)
    )


def is_of_output(name: str) -> bool:
    """Return whether a file is part of the output: it is neither a record nor a file that was never finished."""
    return not is_record(name) and not name.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def shown_names(names: Sequence[str]) -> str:
    """Return the first names as text, with the total number if not all are shown."""
    more = f", ... ({len(names)})" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _is_in(directory: str, place: str) -> bool:
    return directory == place or directory.startswith(f"{place}/")
