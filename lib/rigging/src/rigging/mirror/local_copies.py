"""Undo removals in this prefix, and delete its copies of other regions' files."""

from dataclasses import dataclass

from rigging.errors import InvalidRequest
from rigging.prefixes.paths import relative_path, without_hidden
from rigging.prefixes.prefix_store import Info, PrefixStore, local_store, other_stores
from rigging.prefixes.removed import Removal, read_removal, removed_files, revoke
from rigging.prefixes.union import in_parallel


def removals(*paths: str) -> list[Removal]:
    """Return the files at or below these paths that were removed here and not written again, sorted by path."""
    local = local_store()
    marked = {found for path in _relative(paths) for found in removed_files(local, path)}
    read = [read_removal(local, path) for path in sorted(marked) if local.info(path) is None]
    return [removal for removal in read if removal is not None]


def undelete(*paths: str) -> list[Removal]:
    """Revoke the removals at or below these paths, so that other regions' files are visible again. Return the revoked
    removals.

    Raises:
        FileNotFoundError: Nothing was removed there.
    """
    found = removals(*paths)
    if not found:
        raise FileNotFoundError(f"nothing at or below {', '.join(paths)} was removed in {local_store().prefix.url}")
    revoke(local_store(), [removal.path for removal in found])
    return found


@dataclass(frozen=True, slots=True)
class Dropped:
    """The local files that a drop removes.

    Args:
        files: Files that another region has with the same size, and their sizes in bytes.
        kept: Files that no other region has, or that differ there: only this prefix has this content.
    """

    files: dict[str, int]
    kept: tuple[str, ...]


def drop_plan(*paths: str) -> Dropped:
    """Return the local files below these paths that are copies of another region's files.

    Raises:
        FileNotFoundError: The local prefix has no file at a path.
    """
    local, others = local_store(), other_stores()
    files: dict[str, int] = {}
    kept: list[str] = []
    for path in _relative(paths):
        here, *elsewhere = in_parallel(lambda store, below=path: store.find(below), (local, *others))  # type: ignore[misc]
        visible = without_hidden(here)
        if not visible:
            raise FileNotFoundError(f"{local.url(path)}: no such file or directory, so nothing to drop")
        for name in visible:
            size = int(here[name]["size"])
            if any(_is_copy(entries.get(name), size) for entries in elsewhere):
                files[name] = size
            else:
                kept.append(name)
    return Dropped(files, tuple(kept))


def drop(*paths: str) -> Dropped:
    """Remove local copies of another region's files. Reading them copies them again. Return the removed files."""
    plan, local = drop_plan(*paths), local_store()
    for name in plan.files:
        local.fs.rm_file(local.path(name))
    revoke(local, plan.files.keys() & _marked(local, paths))
    return plan


def _marked(local: PrefixStore, paths: tuple[str, ...]) -> set[str]:
    return {found for path in _relative(paths) for found in removed_files(local, path)}


def _is_copy(entry: Info | None, size: int) -> bool:
    return entry is not None and entry["type"] != "directory" and entry["size"] == size


def _relative(paths: tuple[str, ...]) -> list[str]:
    if not paths:
        raise InvalidRequest("give at least one path")
    return [relative_path(path) for path in paths]
