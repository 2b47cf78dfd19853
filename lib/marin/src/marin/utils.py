"""Small helpers that experiments import: paths on any filesystem, and the TPU lock file."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

from marin.hugging_face import call_with_hf_backoff, load_dataset_with_backoff
from marin.run.tpu_lockfile import TPU_LOCKFILE, LockfileRemoval
from rigging.errors import InvalidRequest
from rigging.filesystem import url_scheme, url_to_fs

__all__ = [
    "TPU_LOCKFILE",
    "call_with_hf_backoff",
    "fsspec_exists",
    "fsspec_glob",
    "fsspec_isdir",
    "fsspec_mkdirs",
    "fsspec_mtime",
    "fsspec_size",
    "gcs_file_exists",
    "get_directory_friendly_name",
    "is_path_like",
    "load_dataset_with_backoff",
    "rebase_file_path",
    "remove_tpu_lockfile_on_exit",
]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def remove_tpu_lockfile_on_exit(fn: F, *, lockfile: str = TPU_LOCKFILE) -> F: ...


@overload
def remove_tpu_lockfile_on_exit(fn: None = None, *, lockfile: str = TPU_LOCKFILE) -> LockfileRemoval: ...


def remove_tpu_lockfile_on_exit(fn: F | None = None, *, lockfile: str = TPU_LOCKFILE) -> F | LockfileRemoval:
    """Remove libtpu's lock file, which would outlive its process, when a function or block ends, normally or not.

    Use it as `@remove_tpu_lockfile_on_exit`, `@remove_tpu_lockfile_on_exit()` or `with remove_tpu_lockfile_on_exit():`,
    below or above `@ray.remote`. For generators and coroutines it removes the file when their body ends. A killed
    process leaves the file: see `marin.run.in_subprocess`.

    Args:
        fn: Any function, but not a class.
        lockfile: The file's path.
    """
    removal = LockfileRemoval(lockfile)
    if fn is None:
        return removal
    decorated: F = removal(fn)
    return decorated


def get_directory_friendly_name(name: str) -> str:
    """Convert a name, such as a Hugging Face repository, to a single directory name: "org/m.v1#x" becomes
    "org--m-v1-x".
    """
    return name.replace("/", "--").replace(".", "-").replace("#", "-")


def is_path_like(path: str) -> bool:
    """Return whether `path` is a URL, or an existing file or directory on this machine."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None or os.path.exists(path)


def fsspec_exists(path: str) -> bool:
    """Return whether a path of any filesystem exists."""
    fs, remote = url_to_fs(path)
    return bool(fs.exists(remote))


def gcs_file_exists(path: str) -> bool:
    """Alias of `fsspec_exists` for older experiments."""
    return fsspec_exists(path)


def fsspec_glob(pattern: str) -> list[str]:
    """Return the sorted paths that match a pattern, with the pattern's scheme."""
    fs, remote = url_to_fs(pattern)
    scheme = pattern.split("://", 1)[0] + "://" if "://" in pattern else ""
    return sorted(scheme + str(match) for match in fs.glob(remote))


def fsspec_mkdirs(path: str, exist_ok: bool = True) -> None:
    """Make a directory and its parents."""
    fs, remote = url_to_fs(path)
    fs.makedirs(remote, exist_ok=exist_ok)


def fsspec_isdir(path: str) -> bool:
    """Return whether a path is a directory."""
    fs, remote = url_to_fs(path)
    return bool(fs.isdir(remote))


def fsspec_size(path: str) -> int:
    """Return the size of a file in bytes.

    Raises:
        FileNotFoundError: The file does not exist.
        InvalidRequest: The filesystem does not report the size.
    """
    fs, remote = url_to_fs(path)
    size = fs.size(remote)
    if size is None:
        raise InvalidRequest(f"{path}: the {url_scheme(path) or 'local'} filesystem does not report its size")
    return int(size)


def fsspec_mtime(path: str) -> datetime.datetime:
    """Return the time when a file was last modified."""
    fs, remote = url_to_fs(path)
    modified: datetime.datetime = fs.modified(remote)
    return modified


def rebase_file_path(
    base_in_path: str,
    file_path: str,
    base_out_path: str,
    new_extension: str | None = None,
    old_extension: str | None = None,
) -> str:
    """Return the path below `base_out_path` that corresponds to a file below `base_in_path`.

    Args:
        base_in_path: The directory that contains the file, at any depth.
        file_path: The file.
        base_out_path: The directory of the result.
        new_extension: The extension to replace the old one, dot included.
        old_extension: The extension to replace; needed if it has more than one dot, such as `.jsonl.gz`.

    Raises:
        InvalidRequest: The file is not below `base_in_path`, or does not end in `old_extension`.
    """
    base = base_in_path.rstrip("/") + "/"
    if not file_path.startswith(base):
        raise InvalidRequest(f"file_path {file_path!r} is not below base_in_path {base_in_path!r}")
    relative = file_path[len(base) :]
    if new_extension is None:
        if old_extension is not None:
            raise InvalidRequest(f"old_extension={old_extension!r} needs a new_extension to take its place")
        return os.path.join(base_out_path, relative)
    if old_extension is None:
        stem = os.path.splitext(relative)[0]
    elif relative.endswith(old_extension):
        stem = relative.removesuffix(old_extension)
    else:
        raise InvalidRequest(f"file_path {file_path!r} does not end in old_extension {old_extension!r}")
    return os.path.join(base_out_path, stem + new_extension)
