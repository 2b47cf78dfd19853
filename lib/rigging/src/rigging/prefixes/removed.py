"""Tombstones: files that were removed here but still exist in another region.

A tombstone is a small file, `.marin-mirror/removed/PATH.removed` below the local prefix. It is valid while the local
prefix has no file of that name, so writing the name again ends it.
"""

import datetime
import json
import shlex
import socket
from collections.abc import Collection
from dataclasses import dataclass

from rigging.clock import SYSTEM_CLOCK, Clock
from rigging.filesystem.atomic import write_bytes_atomic
from rigging.prefixes.paths import PRIVATE_DIRECTORY
from rigging.prefixes.prefix_store import PrefixStore
from rigging.process.parallel import map_in_threads
from rigging.user import user_name

_DIRECTORY = f"{PRIVATE_DIRECTORY}/removed"
_SUFFIX = ".removed"


@dataclass(frozen=True, slots=True)
class Removal:
    """Who removed a file, and when.

    Args:
        path: The file, relative to the prefix.
        removed_at: UTC, as in RFC 3339; "" if the tombstone cannot be read.
        removed_by: user@host.
    """

    path: str
    removed_at: str
    removed_by: str


def described(removal: Removal) -> str:
    """Return why a file is missing, and how to restore it."""
    return (
        f"it was removed here at {removal.removed_at or 'an unknown time'} by {removal.removed_by or 'somebody'}; "
        f"another region still has it: python -m rigging.mirror --undelete {shlex.quote(removal.path)}"
    )


def tombstone(path: str) -> str:
    """Return the relative path of a file's tombstone."""
    return f"{_DIRECTORY}/{path}{_SUFFIX}"


def is_removed(local: PrefixStore, path: str) -> bool:
    """Return whether a file that the local prefix lacks was removed here."""
    return local.info(tombstone(path)) is not None


def removed_files(local: PrefixStore, path: str) -> set[str]:
    """Return the files at or below a path that have a tombstone. Some may have been written again since."""
    below = f"{_DIRECTORY}/{path}" if path else _DIRECTORY
    found = [*local.find(below)]
    if path and is_removed(local, path):
        found.append(tombstone(path))
    return {name[len(_DIRECTORY) + 1 : -len(_SUFFIX)] for name in found if name.endswith(_SUFFIX)}


def read_removal(local: PrefixStore, path: str) -> Removal | None:
    """Return who removed a file and when; None if it was not removed here."""
    try:
        content = json.loads(local.fs.cat_file(local.path(tombstone(path))))
        return Removal(path, str(content["removed_at"]), str(content["removed_by"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Removal(path, "", "")


def mark_removed(local: PrefixStore, paths: Collection[str], clock: Clock = SYSTEM_CLOCK) -> None:
    """Write a tombstone for each file, each atomically."""
    now = datetime.datetime.fromtimestamp(clock.now(), datetime.UTC).isoformat(timespec="seconds")
    content = json.dumps({"removed_at": now, "removed_by": f"{user_name()}@{socket.gethostname()}"}).encode()
    map_in_threads(lambda path: write_bytes_atomic(local.url(tombstone(path)), content), paths)


def revoke(local: PrefixStore, paths: Collection[str]) -> None:
    """Delete tombstones, so that other regions' files are visible again."""
    map_in_threads(lambda path: local.fs.rm_file(local.path(tombstone(path))), paths)
