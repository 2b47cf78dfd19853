"""The files that started clusters, recorded here and on their heads."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from marin.run.cluster.execute import read_on_head
from marin.run.cluster.ray_commands import CONFIG_FILE
from rigging.errors import Unavailable

_NAMES = ("cluster_name", "head_node_type")


def state_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the folder of this user's notes of Ray clusters."""
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "marin" / "ray"


class LaunchedFiles:
    """The content of each cluster file when this user last started its cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "launched"

    def remember(self, file: Path) -> None:
        """Record the file of the running cluster."""
        self._folder.mkdir(parents=True, exist_ok=True)
        note = self._note(file)
        note.with_suffix(".new").write_bytes(file.read_bytes())
        os.replace(note.with_suffix(".new"), note)

    def forget(self, file: Path) -> None:
        """Record that the cluster is gone."""
        self._note(file).unlink(missing_ok=True)

    def find(self, file: Path) -> dict[str, Any] | None:
        """Return the file's recorded content, or None."""
        try:
            found = yaml.safe_load(self._note(file).read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            return None
        return found if isinstance(found, dict) else None

    def _note(self, file: Path) -> Path:
        return self._folder / f"{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:24]}.yaml"


def names_on_head(shown: str) -> dict[str, Any] | None:
    """Return the names that identify the running cluster's nodes, read from its head; None if there is no head.

    Ray fills in the file before it stores it there, so only the names are unchanged.
    """
    try:
        code, text = read_on_head(shown, f"cat {CONFIG_FILE}")
        found = yaml.safe_load(text) if code == 0 else None
    except (Unavailable, yaml.YAMLError):
        return None
    if not isinstance(found, dict):
        return None
    types = found.get("available_node_types") or {}
    provider = found.get("provider") or {}
    kept = ("type", "project_id", "region", "availability_zone")
    return {
        **{key: found.get(key) for key in _NAMES},
        "provider": {key: provider[key] for key in kept if key in provider},
        "available_node_types": {name: {} for name in types},
    }
