"""The effects of a changed cluster file on a running cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from rigging.errors import Conflict


class Effect(IntEnum):
    """The effect of a change on the running cluster, from harmless to harmful."""

    NONE = 0
    TAKEN_UP = 1
    RESTART = 2
    ORPHANS = 3


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between the file of a running cluster and a new one."""

    effect: Effect
    text: str


_TAKEN_UP: Final = frozenset({"max_workers", "upscaling_speed", "idle_timeout_minutes"})
_TYPE_TAKEN_UP: Final = frozenset({"min_workers", "max_workers", "idle_timeout_s", "priority"})
_IDENTITY: Final = {
    "type": "provider",
    "project_id": "provider",
    "region": "provider",
    "availability_zone": "provider",
}


def compare(running: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Return the changes between the file that started a cluster and a new one, most harmful first."""
    changes = [*_identity(running, new), *_types(running, new), *_others(running, new)]
    return sorted(changes, key=lambda change: -change.effect)


def check_no_orphans(running: Mapping[str, Any], new: Mapping[str, Any], origin: str) -> None:
    """Check that Ray still finds all nodes of the running cluster with a changed file.

    Args:
        running: The file that started the cluster.
        new: The changed file.
        origin: The changed file's name, for messages.

    Raises:
        Conflict: No command would find or remove some nodes.
    """
    _refuse(running, new, origin, Effect.ORPHANS, "take the cluster down with its old file first")


def check_taken_up(running: Mapping[str, Any], new: Mapping[str, Any], origin: str) -> None:
    """Check that every change takes effect while the cluster runs.

    Args:
        running: The file that started the cluster.
        new: The changed file.
        origin: The changed file's name, for messages.

    Raises:
        Conflict: A change would have no effect.
    """
    _refuse(running, new, origin, Effect.RESTART, "take the cluster down, or restart it, with its jobs")


def _refuse(running: Mapping[str, Any], new: Mapping[str, Any], origin: str, least: Effect, advice: str) -> None:
    refused = [change.text for change in compare(running, new) if change.effect >= least]
    if refused:
        listed = "\n".join(f"  {text}" for text in refused)
        raise Conflict(
            f"{origin} cannot be applied to the running cluster {running.get('cluster_name')!r}:\n{listed}\n{advice}"
        )


def _identity(running: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    old_name, name = running.get("cluster_name"), new.get("cluster_name")
    if old_name != name:
        yield Change(
            Effect.ORPHANS,
            f"cluster_name {old_name!r} became {name!r}: Ray finds a cluster's VMs by its name, so the running ones "
            "would become orphans, and a second cluster would start",
        )
    for key, section in _IDENTITY.items():
        before, after = running.get(section, {}).get(key), new.get(section, {}).get(key)
        if before != after:
            yield Change(
                Effect.ORPHANS,
                f"{section}.{key} {before!r} became {after!r}: Ray would not look there for the running VMs any more, "
                "which would become orphans",
            )
    if running.get("head_node_type") != new.get("head_node_type"):
        yield Change(
            Effect.ORPHANS,
            f"head_node_type {running.get('head_node_type')!r} became {new.get('head_node_type')!r}: the running "
            "head is labelled with its type and would be replaced, with all of its jobs",
        )


def _types(running: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    old_types = running.get("available_node_types") or {}
    new_types = new.get("available_node_types") or {}
    added = {name for name in new_types if name not in old_types}
    for name, old in old_types.items():
        if name not in new_types:
            if name == running.get("head_node_type"):
                continue
            twin = next((each for each in added if new_types[each].get("node_config") == old.get("node_config")), None)
            what = f"became {twin!r}" if twin else "is gone"
            added.discard(twin or "")
            yield Change(
                Effect.ORPHANS,
                f"worker type {name!r} {what}: running nodes are labelled with their type's name, so these would "
                f"become orphans{'' if twin else '; keep the type, with max_workers: 0, until none is left'}",
            )
            continue
        yield from _type(name, old, new_types[name])
    yield from (Change(Effect.TAKEN_UP, f"worker type {name!r} is new") for name in sorted(added))


def _type(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted({*old, *new}):
        if old.get(key) == new.get(key):
            continue
        if key in _TYPE_TAKEN_UP:
            yield Change(Effect.TAKEN_UP, f"{name}.{key}: {old.get(key)!r} became {new.get(key)!r}")
        else:
            yield Change(Effect.RESTART, f"{name}.{key} changed: running nodes keep their old settings")


def _others(running: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    handled = {"cluster_name", "head_node_type", "available_node_types"}
    for key in sorted({*running, *new} - handled):
        before, after = running.get(key), new.get(key)
        if key == "provider":
            before, after = _without_identity(before), _without_identity(after)
        if before == after:
            continue
        if key in _TAKEN_UP:
            yield Change(Effect.TAKEN_UP, f"{key}: {before!r} became {after!r}")
        else:
            yield Change(Effect.RESTART, f"{key} changed, which is used when a node starts")


def _without_identity(provider: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (provider or {}).items() if key not in _IDENTITY}
