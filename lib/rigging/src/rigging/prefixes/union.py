"""Query all regions as if they were one, without copying anything.

The local entry wins. Files removed here are hidden in other regions, too (`rigging.prefixes.removed`).
"""

from collections.abc import Callable, Sequence, Set
from typing import Any, TypeVar

from rigging.prefixes.paths import is_private, without_hidden
from rigging.prefixes.prefix_store import Info, PrefixStore, StoreKind, local_store, other_stores
from rigging.prefixes.removed import removed_files, tombstone
from rigging.process.parallel import map_in_threads

_T = TypeVar("_T")


def union_info(path: str) -> Info | None:
    """Return the entry of a file or directory from the first region that has it; None if no region has it."""
    local = local_store()
    info = local.info(path)
    if info is not None:
        return as_mirrored(info, path, local)
    found = elsewhere(path)
    return None if found is None else as_mirrored(found[1], path, found[0])


def elsewhere(path: str) -> tuple[PrefixStore, Info] | None:
    """Return the first other region that has a file or directory that was not removed here, and its entry there."""
    if is_private(path):
        # One region's locks and temporary files are nothing to another.
        return None
    local, others = local_store(), other_stores()
    if not others:
        return None
    is_removed, *infos = in_parallel(
        lambda store: store.info(tombstone(path) if store is local else path), (local, *others)
    )
    hidden: set[str] | None = None
    for store, info in zip(others, infos, strict=True):
        if info is None or (is_removed is not None and info["type"] != "directory"):
            continue
        if info["type"] == "directory":
            hidden = removed_files(local, path) if hidden is None else hidden
            if hidden and not _shows(store, path, hidden):
                continue
        return store, info
    return None


def union_list(path: str) -> list[Info] | None:
    """Return the children of a directory in all regions, sorted by name; None if it is a directory in none."""
    local, others = local_store(), other_stores()
    stores = (local, *others)
    hidden = removed_files(local, path) if others else set()
    merged: dict[str, Info] = {}
    known = False
    for store, entries in zip(stores, in_parallel(lambda store: store.list(path), stores), strict=True):
        seen = entries or {}
        if hidden and store is not local:
            seen = {child: entry for child, entry in seen.items() if _is_seen(store, child, entry, hidden)}
        # A directory of which everything was removed is none any more; an empty one is.
        known = known or (entries is not None and (bool(seen) or not entries or store is local))
        for child, entry in seen.items():
            merged.setdefault(child, as_mirrored(entry, child, store))
    return [merged[child] for child in without_hidden(sorted(merged))] if known else None


def union_find(path: str, **kwargs: Any) -> dict[str, Info]:
    """Return everything below a directory in all regions, sorted by path. kwargs are those of fsspec's `find`."""
    local, others = local_store(), other_stores()
    stores = (local, *others)
    hidden = removed_files(local, path) if others else set()
    merged: dict[str, Info] = {}
    for store, entries in zip(stores, in_parallel(lambda store: store.find(path, **kwargs), stores), strict=True):
        for child, entry in entries.items():
            is_directory = entry["type"] == "directory"
            if (
                hidden
                and store is not local
                and (not _shows(store, child, hidden) if is_directory else child in hidden)
            ):
                continue
            merged.setdefault(child, as_mirrored(entry, child, store))
    return {child: merged[child] for child in without_hidden(sorted(merged))}


def files_elsewhere(path: str, maxdepth: int | None = None) -> set[str]:
    """Return the files below a directory that other regions have and that were not removed here."""
    kwargs = {} if maxdepth is None else {"maxdepth": maxdepth}
    found = in_parallel(lambda store: store.find(path, **kwargs), other_stores())
    every = {name for entries in found for name, entry in entries.items() if entry["type"] != "directory"}
    return set(without_hidden(every)) - removed_files(local_store(), path)


def _is_seen(store: PrefixStore, path: str, entry: Info, hidden: Set[str]) -> bool:
    return _shows(store, path, hidden) if entry["type"] == "directory" else path not in hidden


def _shows(store: PrefixStore, directory: str, hidden: Set[str]) -> bool:
    """Return whether another region's directory has something that was not removed here, or was always empty."""
    below = f"{directory}/" if directory else ""
    if not any(path.startswith(below) for path in hidden):
        return True
    return any(path not in hidden for path in store.find(directory))


def as_mirrored(info: Info, path: str, store: PrefixStore) -> Info:
    """Return an entry under its mirror path, with its prefix as `mirror_prefix`.

    Args:
        info: The entry as listed by its store.
        path: The mirror path.
        store: The prefix that has the entry.
    """
    return {**info, "name": path, "mirror_prefix": store.prefix.url}


def in_parallel(ask: Callable[[PrefixStore], _T], stores: Sequence[PrefixStore]) -> list[_T]:
    """Query several regions at once. Answers are in the order of `stores`; the first failure is raised."""
    if all(store.kind in (StoreKind.LOCAL, StoreKind.MEMORY) for store in stores):
        return [ask(store) for store in stores]
    return map_in_threads(ask, stores)
