"""Read outputs of steps from storage: status, info file, files, lease."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from marin.execution.lease.status_words import STATUS_RUNNING
from marin.output_files import INFO_FILE, LOCK_FILE, LOG_FILE, STATUS_FILE
from marin.recorded.deciding.leases import LeaseSeen
from marin.recorded.deciding.run_names import nearest_names
from marin.recorded.deciding.step_names import outputs_named, split_word, stem_of
from marin.recorded.reading.leases import read_lease
from marin.recorded.reading.runs import read_json
from marin.recorded.reading.store import below, each, modified_at, size_of
from marin.stored_files import names_in, shown_names
from rigging.errors import InvalidRequest, NotFound
from rigging.filesystem import local_path


@dataclass(frozen=True, slots=True)
class StepRecord:
    """An output in storage.

    Attributes:
        path: The output path.
        status: The word in its status file, or None.
        info: Its `.executor_info`; None if it is missing or damaged.
        damage: The problem of the damaged file.
        files: The names in the output path, with the sizes of files; None for a directory.
        lease: Its lease; None if nobody holds one.
        aside: The path where `--force` has set an earlier output aside, or None.
    """

    path: str
    status: str | None
    info: dict[str, Any] | None
    damage: str | None
    files: dict[str, int | None]
    lease: LeaseSeen | None
    aside: str | None


def is_output(path: str) -> bool:
    """Return whether a path has a step's output, complete or not."""
    return bool({INFO_FILE, STATUS_FILE, LOG_FILE} & set(names_in(path)))


def find_step(root: str, word: str, note: Callable[[str], None] | None = None) -> str:
    """Return the output path that a word refers to.

    Args:
        root: The storage root.
        word: An output path, absolute or below the root; or a step's name.
        note: Called with a note if a step has several outputs; the newest is returned.

    Raises:
        NotFound: The output does not exist. The message suggests the nearest names.
        InvalidRequest: Several outputs have that name, and there is no `note`.
    """
    directory, name = split_word(word, root)
    names = names_in(directory)
    found = [path for path in (f"{directory}/{other}" for other in outputs_named(name, names)) if is_output(path)]
    if not found:
        nearest = nearest_names(name, [*names, *(stem for other in names if (stem := stem_of(other)))])
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        raise NotFound(f"no output {word!r} in {directory}{hint}")
    if len(found) > 1:
        if note is None:
            raise InvalidRequest(f"{len(found)} outputs have the name {word!r}: {shown_names(found)}")
        written = each(_written_at, found, directory)
        found = [path for _, path in sorted(zip(written, found, strict=True), reverse=True)]
        note(f"{found[0]} is the newest of {len(found)} outputs of {word!r}; older: {shown_names(found[1:])}")
    return found[0]


def _written_at(path: str) -> float:
    """Return the time of an output's status file or, without one, its info file; 0.0 if storage does not report it."""
    return modified_at(below(path, STATUS_FILE)) or modified_at(below(path, INFO_FILE)) or 0.0


def read_step(path: str, now: float) -> StepRecord:
    """Return the content of an output path.

    Args:
        path: The output path.
        now: The current time, in seconds since the epoch.
    """
    from marin.execution.lease.set_aside import aside_of, is_aside

    status = read_status(path)
    info, damage = read_json(below(path, INFO_FILE))
    names = sorted(names_in(path))
    sizes = each(functools.partial(_size, path), names, path)
    lease = read_lease(below(path, LOCK_FILE), now)
    if status == STATUS_RUNNING and lease is None:
        status = read_status(path)  # it may have ended just now
    aside = aside_of(path) if is_aside(path) else None
    return StepRecord(path, status, info, damage, dict(zip(names, sizes, strict=True)), lease, aside)


def read_status(path: str) -> str | None:
    """Return the status of an output, or None."""
    from marin.execution.lease.status_file import StatusFile

    return StatusFile(path).status


def read_statuses(paths: Sequence[str]) -> dict[str, str | None]:
    """Return the statuses of many outputs in few requests."""
    from marin.execution.record.output_state import read_statuses as read

    return read(paths)


def _size(path: str, name: str) -> int | None:
    place = below(path, name)
    local = local_path(place)
    if local is not None and os.path.isdir(local):
        return None
    return size_of(place)
