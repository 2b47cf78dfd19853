"""Settings from `iris cluster start --local`, which also apply to later starts."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from iris.local.state import LocalPaths
from rigging.errors import MarinError
from rigging.filesystem import write_bytes_atomic


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The remote state directory, the durability of submissions (docs/durability.md), and the cluster file.

    Args:
        config: The cluster file.
        max_hosts: Maximum number of hosts of the file's slices; 0 for the embedded cluster with one worker.
    """

    config: str = ""
    remote_state_dir: str = ""
    durability: str = ""
    max_hosts: int = 0


def read_settings(paths: LocalPaths) -> LocalSettings:
    """Return the settings of a local cluster; the defaults if none are stored. Raises MarinError for damaged
    settings.
    """
    place = _place(paths)
    try:
        return LocalSettings(**json.loads(place.read_text()))
    except FileNotFoundError:
        return LocalSettings()
    except (OSError, ValueError, TypeError) as error:
        raise MarinError(f"cannot read {place}: {error}; remove it to continue with the defaults") from None


def write_settings(paths: LocalPaths, settings: LocalSettings) -> None:
    """Store settings for this and later starts."""
    write_bytes_atomic(str(_place(paths)), json.dumps(asdict(settings)).encode())


def _place(paths: LocalPaths) -> Path:
    return paths.root / "settings.json"
