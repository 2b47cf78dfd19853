"""The state of many outputs before a run: their statuses and the digests of their info files, in few requests.

A bucket listing includes each file's MD5, which reveals a status without reading its file.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from marin.execution.lease.first_generation import is_local_success, is_success, is_without_success
from marin.execution.lease.status_words import (
    STATUS_DEP_FAILED,
    STATUS_FAILED,
    STATUS_RUNNING,
    STATUS_SUCCESS,
    parse_status,
    status_path,
)
from marin.execution.record.info import STEP_INFO_FILE
from marin.output_files import STATUS_FILE
from marin.stored_files import reading
from rigging.errors import NotFound
from rigging.filesystem import local_path, read_bytes_or_none, url_scheme, url_to_fs
from rigging.filesystem.location import path_in
from rigging.process.parallel import map_in_threads

T = TypeVar("T")

_PAGE = 1000
# A directory is listed as long as that takes fewer requests than looking at each output, and at most these pages.
_MOST_PAGES = 16
_STEPS_PER_PAGE = 50

# A local directory is listed as long as that takes less time than looking for outputs that are not there.
_ENTRIES_PER_STEP = 10

_COMMON_PREFIX = ".executor_"
# Most files fit in one read of this size.
_CHUNK_BYTES = 1 << 14


def md5_of(content: bytes) -> str:
    """Return the MD5 of a file's content in the form of `OutputState.info_md5`."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


_WORDS = {md5_of(word.encode()): word for word in (STATUS_SUCCESS, STATUS_FAILED, STATUS_RUNNING, STATUS_DEP_FAILED)}

INFO_UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class OutputState:
    """The state of one output path.

    Attributes:
        status: The status; None if there is no status file.
        info_md5: MD5 of `.executor_info`, 32 hex digits; None if the file does not exist, `INFO_UNKNOWN` if it was not
            checked.
    """

    status: str | None
    info_md5: str | None


NO_OUTPUT = OutputState(None, None)
OutputStates = dict[str, OutputState]


def read_output_states(output_paths: Sequence[str], fixed: Collection[str] = ()) -> OutputStates:
    """Return the state of each output.

    Local files are read one by one; for outputs without files, the parent directory is listed. On GCS and S3, outputs
    in one directory are listed together if few pages suffice, else one by one in parallel. On other stores only
    statuses are read.

    Args:
        output_paths: The output paths.
        fixed: Paths fixed by people, possibly to an output from before status files existed.
    """
    states: OutputStates = {}
    remote: list[str] = []
    folders: dict[str, list[tuple[str, str]]] = {}
    for path in output_paths:
        # Most paths are plain ones; asking what they are costs more than to read the file.
        local = path if path.startswith("/") else local_path(path)
        if local is None:
            remote.append(path)
        else:
            folder, _, name = local.rstrip("/").rpartition("/")
            folders.setdefault(folder, []).append((path, name))
    for folder, members in folders.items():
        states.update(_read_folder(folder, members))
    if remote:
        states.update(_read_remote(remote))
        old = [path for path in remote if states[path].status is None and (path in fixed or states[path].info_md5)]
        found = _in_parallel(is_success, old)
        states.update({path: replace(states[path], status=STATUS_SUCCESS) for path in old if found[path]})
    return states


def read_infos(output_paths: Sequence[str]) -> dict[str, bytes | None]:
    """Return the content of each output's `.executor_info`, or None."""
    return _in_parallel(lambda path: read_bytes_or_none(os.path.join(path, STEP_INFO_FILE)), output_paths)


def _read_folder(folder: str, members: Sequence[tuple[str, str]]) -> OutputStates:
    """Return the states of outputs in one local directory, given each path and its name there."""
    names = _names_in(folder or "/", _ENTRIES_PER_STEP * len(members))
    return {
        path: NO_OUTPUT if names is not None and _is_missing(name, names) else _read_local(f"{folder}/{name}")
        for path, name in members
    }


def _names_in(folder: str, most: int) -> set[str] | None:
    """Return the names in a directory, case folded; None if there are more than `most`."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name.casefold() for entry in itertools.islice(entries, most + 1)]
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except PermissionError:
        return None
    return set(names) if len(names) <= most else None


def _is_missing(name: str, names: Collection[str]) -> bool:
    """Return whether a directory certainly has no output of this name, and no SUCCESS file for it.

    A filesystem may match names in other spellings, and listings omit "." and "..".
    """
    if not name.isascii() or name in ("", ".", ".."):
        return False
    folded = name.casefold()
    return folded not in names and is_without_success(folded, names)


def _read_local(path: str) -> OutputState:
    content = _read_file(path_in(path, STATUS_FILE))
    if content is None and not is_local_success(path):
        return NO_OUTPUT
    status = STATUS_SUCCESS if content in (b"SUCCESS", None) else parse_status(content)
    info = _read_file(path_in(path, STEP_INFO_FILE))
    return OutputState(status, None if info is None else md5_of(info))


def _read_file(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = os.read(descriptor, _CHUNK_BYTES)
        if len(content) == _CHUNK_BYTES:
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                content += chunk
        return content
    finally:
        os.close(descriptor)


def _read_remote(paths: Sequence[str]) -> OutputStates:
    groups: dict[str, list[str]] = {}
    for path in paths:
        if url_scheme(path) in _LISTERS:
            groups.setdefault(path.rpartition("/")[0], []).append(path)
    states: OutputStates = {}
    for parent, members in groups.items():
        states.update(_list(parent, members))
    rest = [path for path in paths if path not in states]
    states.update(_in_parallel(_look_at_one, rest))
    return states


def _in_parallel(look: Callable[[str], T], paths: Sequence[str]) -> dict[str, T]:
    if all(local_path(path) is not None for path in paths):
        return {path: look(path) for path in paths}
    return dict(zip(paths, map_in_threads(look, paths), strict=True))


def _look_at_one(path: str) -> OutputState:
    if url_scheme(path) in _LISTERS:
        return _list(path.rpartition("/")[0], [path])[path]
    with reading(path):
        status = parse_status(read_bytes_or_none(status_path(path)))
    return OutputState(status, INFO_UNKNOWN)


def _list(parent: str, members: Sequence[str]) -> OutputStates:
    """Return the states visible in one listing of a directory. For several outputs the listing may be incomplete."""
    fs, directory = url_to_fs(parent)
    directory = directory.rstrip("/")
    names = [path.rpartition("/")[2] for path in members]
    common = _common_beginning(names) if len(names) > 1 else f"{names[0]}/{_COMMON_PREFIX}"
    limit = _PAGE * min(_MOST_PAGES, max(1, len(members) // _STEPS_PER_PAGE))
    try:
        with reading(parent):
            hashes = _LISTERS[url_scheme(parent)](fs, directory, common, limit)
    except FileNotFoundError:  # not said of a directory, which need not be there
        bucket = "/".join(parent.split("/")[:3])
        raise NotFound(f"there is no bucket {bucket}; make it, or set MARIN_PREFIX or --prefix to one") from None
    # Listings are in the order of names: what comes after the last of a cut one is not known.
    last = max(hashes) if len(hashes) >= limit else None
    states: OutputStates = {}
    for path, name in zip(members, names, strict=True):
        output = f"{directory}/{name}"
        if last is None or len(members) == 1 or f"{output}/{STATUS_FILE}~" < last:
            states[path] = _output_state(path, output, hashes)
    return states


def _list_gcs(fs: Any, directory: str, beginning: str, limit: int) -> dict[str, str]:
    """Return the MD5 ("" if there is none) of the first files below a directory whose names have a prefix."""
    bucket, _, key = directory.partition("/")
    # Asked of the bucket: about a directory with nothing in it gcsfs asks twice.
    prefix = f"{key}/{beginning}" if key else beginning
    entries: list[Mapping[str, Any]] = fs.ls(
        bucket, detail=True, refresh=True, prefix=prefix, delimiter="", max_results=limit
    )
    return {str(entry["name"]): _hex(entry.get("md5Hash")) for entry in entries}


def _list_s3(fs: Any, directory: str, beginning: str, limit: int) -> dict[str, str]:
    """List like `_list_gcs`. The hash of a multipart upload is not a hash of its content."""
    entries: Mapping[str, Mapping[str, Any]] = fs.find(directory, prefix=beginning, detail=True, max_items=limit)
    return {name: str(entry.get("ETag", "")).strip('"') for name, entry in entries.items()}


_LISTERS: Final[Mapping[str, Callable[[Any, str, str, int], dict[str, str]]]] = {
    "gs": _list_gcs,
    "gcs": _list_gcs,
    "s3": _list_s3,
    "s3a": _list_s3,
}


def _common_beginning(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]


def _hex(md5_hash: Any) -> str:
    return base64.b64decode(md5_hash).hex() if isinstance(md5_hash, str) else ""


def _output_state(path: str, output: str, hashes: Mapping[str, str]) -> OutputState:
    """Return the state of an output from the hashes of its files. If the status is not a plain word, its file is
    read."""
    status_hash = hashes.get(f"{output}/{STATUS_FILE}")
    info_md5 = hashes.get(f"{output}/{STEP_INFO_FILE}")
    if status_hash is None:
        return OutputState(None, info_md5)
    status = _WORDS.get(status_hash) or parse_status(read_bytes_or_none(status_path(path)))
    return OutputState(status, info_md5 or (INFO_UNKNOWN if info_md5 == "" else None))


def statuses_of(states: Mapping[str, OutputState]) -> dict[str, str | None]:
    """Return the status of each output path."""
    return {path: state.status for path, state in states.items()}


def read_statuses(output_paths: Iterable[str]) -> dict[str, str | None]:
    """Return the status of each output path, in few requests."""
    paths = list(output_paths)
    states = read_output_states(paths)
    return {path: states[path].status for path in paths}
