"""Settings from `iris cluster start --local`, which also apply to later starts."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from iris.local.state import LocalPaths
from rigging.errors import MarinError
from rigging.filesystem import write_bytes_atomic
from rigging.text.yaml_files import variables_of


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


def file_variables(paths: LocalPaths) -> frozenset[str]:
    """Return the names of the environment variables that a local cluster's file refers to."""
    with contextlib.suppress(OSError, ValueError):
        return frozenset(variables_of(Path(read_settings(paths).config or os.devnull).read_text()))
    return frozenset()


def write_settings(paths: LocalPaths, settings: LocalSettings) -> None:
    """Store settings for this and later starts."""
    write_bytes_atomic(str(_place(paths)), json.dumps(asdict(settings)).encode())


def _place(paths: LocalPaths) -> Path:
    return paths.root / "settings.json"
