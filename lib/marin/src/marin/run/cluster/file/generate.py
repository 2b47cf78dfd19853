"""Generate a project's cluster files, or compare them with existing ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from marin.run.cluster.file.render import render
from marin.run.cluster.file.settings import SETTINGS_FILE, read_settings
from rigging.errors import InvalidRequest, NotFound

TEMPLATE_FILE: Final = "marin-cluster-template.yaml"
DEFAULT_FILE: Final = "marin-cluster.yaml"


def make_files(folder: Path) -> dict[str, str]:
    """Return the texts of a folder's cluster files by name, rendered from its settings and template. Raise
    MarinError.
    """
    if not (folder / SETTINGS_FILE).is_file():
        raise NotFound(f"{folder} has no {SETTINGS_FILE}, which describes the clusters")
    settings = read_settings(folder / SETTINGS_FILE)
    try:
        template = (folder / TEMPLATE_FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{folder / TEMPLATE_FILE} cannot be read: {error}") from None
    files = {f"{cluster.cluster_name}.yaml": render(template, cluster) for cluster in settings.clusters.values()}
    return {DEFAULT_FILE: files[f"{settings.clusters[settings.default].cluster_name}.yaml"], **files}


def differing(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Return the names of files that differ from the rendered ones, and of cluster files without settings."""
    made = {name for name, text in files.items() if _read(folder / name) == text}
    left = {path.name for path in folder.glob("marin-*.yaml")} - set(files) - {TEMPLATE_FILE}
    return sorted((set(files) - made) | left)


def write_files(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Write the files that differ and return their names. Nothing is removed."""
    changed = [name for name in differing(folder, files) if name in files]
    for name in changed:
        (folder / name).write_text(files[name], encoding="utf-8")
    return changed


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
