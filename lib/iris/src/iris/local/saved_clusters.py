"""Clusters that `iris cluster start` has started or found, by name: addresses and tokens of those elsewhere."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from iris.local.start import LocalCluster
from iris.local.state import LocalPaths, held_lock, is_locked, lock_holder, named_paths
from rigging.errors import Conflict, MarinError
from rigging.filesystem import write_bytes_atomic
from rigging.filesystem.private import write_private

_RECORD: Final = "elsewhere.json"
_TOKEN: Final = "elsewhere-token"
_LOCK: Final = "elsewhere.lock"
"""Held by the command that starts the cluster."""


@dataclass(frozen=True, slots=True)
class SavedCluster:
    """A cluster elsewhere.

    Args:
        file: Its cluster file.
        address: "host:port" of its controller; empty until it has answered.
        token_file: The file with the user's token.
    """

    file: str
    address: str
    token_file: str


def saved_cluster(environ: Mapping[str, str], name: str) -> SavedCluster | None:
    """Return the cluster saved under a name; None if there is none. Raise MarinError for a damaged record."""
    place = named_paths(environ, name).root / _RECORD
    try:
        return SavedCluster(**json.loads(place.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise MarinError(f"cannot read {place}: {error}; `iris cluster start FILE` writes it anew") from None


def started_clusters(environ: Mapping[str, str]) -> dict[str, Path | None]:
    """Return the files of saved clusters and of running local ones, by name; None for a local one's file."""
    root = named_paths(environ, "any").root.parent
    found: dict[str, Path | None] = {}
    for name in sorted(path.name for path in root.iterdir()) if root.is_dir() else ():
        with contextlib.suppress(MarinError):
            saved = saved_cluster(environ, name)
            if saved is not None or LocalCluster(named_paths(environ, name)).find() is not None:
                found[name] = Path(saved.file) if saved else None
    return found


@contextlib.contextmanager
def starting(environ: Mapping[str, str], name: str) -> Iterator[None]:
    """Context manager: hold the lock of a cluster's start. Raise Conflict if another command here holds it."""
    paths = named_paths(environ, name)
    LocalPaths(paths.root.parent).make()
    paths.make()
    lock = paths.root / _LOCK
    holder = lock_holder(lock)
    if holder is not None:
        raise Conflict(
            f"process {holder} is starting cluster {name}; wait until it is ready, or end that process first"
        )
    with held_lock(lock, timeout=1):
        yield


def is_starting(environ: Mapping[str, str], name: str) -> bool:
    """Return whether a command on this machine is starting a cluster."""
    return is_locked(named_paths(environ, name).root / _LOCK)


def save_start(environ: Mapping[str, str], name: str, file: Path) -> None:
    """Save, within `starting`, that machines of a cluster are created, so that an interrupted start is found."""
    if saved_cluster(environ, name) is None:
        _write(named_paths(environ, name), SavedCluster(str(file), "", ""))


def save_cluster(environ: Mapping[str, str], name: str, file: Path, address: str, token: str) -> SavedCluster:
    """Save a cluster under a name, with the user's token in a file that only the user can read."""
    paths = named_paths(environ, name)
    LocalPaths(paths.root.parent).make()
    paths.make()
    write_private(paths.root / _TOKEN, token.encode())
    saved = SavedCluster(str(file), address, str(paths.root / _TOKEN))
    _write(paths, saved)
    return saved


def _write(paths: LocalPaths, saved: SavedCluster) -> None:
    write_bytes_atomic(str(paths.root / _RECORD), json.dumps(asdict(saved)).encode())


def forget_cluster(environ: Mapping[str, str], name: str) -> None:
    """Remove what is saved under a name."""
    root = named_paths(environ, name).root
    for file in (_RECORD, _TOKEN):
        with contextlib.suppress(FileNotFoundError):
            (root / file).unlink()
