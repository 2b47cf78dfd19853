"""Looking into all regions as if they were one, without copying anything; the local entry wins."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rigging.mirror.paths import is_private, without_hidden
from rigging.mirror.prefix_store import Info, PrefixStore, StoreKind, local_store, other_stores

_T = TypeVar("_T")


def union_info(path: str) -> Info | None:
    """Return the entry of a file or directory from the first region that has it, or None when none has."""
    local = local_store()
    info = local.info(path)
    if info is not None:
        return as_mirrored(info, path, local)
    found = elsewhere(path)
    return None if found is None else as_mirrored(found[1], path, found[0])


def elsewhere(path: str) -> tuple[PrefixStore, Info] | None:
    """Return the first other region that has a file or directory, and its entry there."""
    if is_private(path):
        # One region's locks and temporary files are nothing to another.
        return None
    others = other_stores()
    for store, info in zip(others, in_parallel(lambda store: store.info(path), others), strict=True):
        if info is not None:
            return store, info
    return None


def union_list(path: str) -> list[Info] | None:
    """Return the children of a directory in all regions, sorted by name, or None when it is a directory in none."""
    stores = (local_store(), *other_stores())
    merged: dict[str, Info] = {}
    known = False
    for store, entries in zip(stores, in_parallel(lambda store: store.list(path), stores), strict=True):
        known = known or entries is not None
        for child, entry in (entries or {}).items():
            merged.setdefault(child, as_mirrored(entry, child, store))
    return [merged[child] for child in without_hidden(sorted(merged))] if known else None


def union_find(path: str, **kwargs: Any) -> dict[str, Info]:
    """Return what lies below a directory in all regions, sorted by path; kwargs as for fsspec's `find`."""
    stores = (local_store(), *other_stores())
    merged: dict[str, Info] = {}
    for store, entries in zip(stores, in_parallel(lambda store: store.find(path, **kwargs), stores), strict=True):
        for child, entry in entries.items():
            merged.setdefault(child, as_mirrored(entry, child, store))
    return {child: merged[child] for child in without_hidden(sorted(merged))}


def as_mirrored(info: Info, path: str, store: PrefixStore) -> Info:
    """Return an entry under its mirror path, with the prefix that it was found in as `mirror_prefix`.

    Args:
        info: The entry as its store lists it.
        path: The mirror path.
        store: The prefix that it was found in.
    """
    return {**info, "name": path, "mirror_prefix": store.prefix.url}


def in_parallel(ask: Callable[[PrefixStore], _T], stores: Sequence[PrefixStore]) -> list[_T]:
    """Ask several regions at once; the answers are in the order of `stores`, the first failure is raised."""
    if len(stores) < 2 or all(store.kind in (StoreKind.LOCAL, StoreKind.MEMORY) for store in stores):
        return [ask(store) for store in stores]
    with ThreadPoolExecutor(max_workers=len(stores), thread_name_prefix="mirror-ask") as pool:
        return list(pool.map(ask, stores))
