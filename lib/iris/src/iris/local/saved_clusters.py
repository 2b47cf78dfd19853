"""Clusters that `iris cluster start` has started or found, by name: addresses and tokens of those elsewhere."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from iris.local.start import LocalCluster
from iris.local.state import LocalPaths, named_paths
from rigging.errors import MarinError
from rigging.filesystem import write_bytes_atomic
from rigging.filesystem.private import write_private

_RECORD: Final = "elsewhere.json"
_TOKEN: Final = "elsewhere-token"


@dataclass(frozen=True, slots=True)
class SavedCluster:
    """A cluster elsewhere.

    Args:
        file: Its cluster file.
        address: "host:port" of its controller.
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


def save_cluster(environ: Mapping[str, str], name: str, file: Path, address: str, token: str) -> SavedCluster:
    """Save a cluster under a name, with the user's token in a file that only the user can read."""
    paths = named_paths(environ, name)
    LocalPaths(paths.root.parent).make()
    paths.make()
    write_private(paths.root / _TOKEN, token.encode())
    saved = SavedCluster(str(file), address, str(paths.root / _TOKEN))
    write_bytes_atomic(str(paths.root / _RECORD), json.dumps(asdict(saved)).encode())
    return saved


def forget_cluster(environ: Mapping[str, str], name: str) -> None:
    """Remove what is saved under a name."""
    root = named_paths(environ, name).root
    for file in (_RECORD, _TOKEN):
        with contextlib.suppress(FileNotFoundError):
            (root / file).unlink()
