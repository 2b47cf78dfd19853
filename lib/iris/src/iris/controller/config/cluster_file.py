"""The cluster's config file: what a controller reads of it. Every refusal names file, key, value and what is allowed.

controller: {port: 7077, state_dir: ~/iris, log_limit: 1GB}        # and, for clients: address, token_file
storage: {remote_state_dir: gs://bucket/iris, durability: remote, disk_reserve: 64MB}
scale_groups:
  - {name: v5p-64-b, accelerator: {type: tpu, variant: v5p-64, count: 4}, cpu: 208, memory: 448GB, disk: 100GB,
     hosts_per_slice: 8, region: us-east5, zone: us-east5-b, preemptible: true, min_slices: 0, max_slices: 4}
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iris.cluster.sizes import parse_size
from iris.controller.config.controller_config import Durability
from iris.controller.logs.store import DEFAULT_LIMIT_BYTES
from iris.controller.storage.disk_space import DEFAULT_RESERVE_BYTES
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from rigging.errors import InvalidRequest
from rigging.topology import get_tpu_topology

_OWN_SECTIONS: Final = ("name", "controller", "storage", "scale_groups")
# Of older cluster files: known, so that such a file is read, and not used where there is no provider of that kind.
_OLDER_SECTIONS: Final = (
    *("platform", "defaults", "auth", "user_budgets", "tpu_pools", "endpoints", "log_server_config"),
    *("worker_provider", "kubernetes_provider"),
)
_PROVIDERS: Final = ("worker_provider", "kubernetes_provider")
_SECTIONS: Final = (*_OWN_SECTIONS, *_OLDER_SECTIONS)
_CONTROLLER_KEYS: Final = ("address", "token_file", "port", "state_dir", "log_limit")
_STORAGE_KEYS: Final = ("remote_state_dir", "durability", "disk_reserve")
_GROUP_KEYS: Final = (
    *("name", "accelerator", "cpu", "memory", "disk", "hosts_per_slice", "min_slices", "max_slices"),
    *("region", "zone", "preemptible", "attributes"),
)
_ACCELERATOR_KEYS: Final = ("type", "variant", "count")
_MANY: Final = 100_000
_LEAST_LOG_LIMIT: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The controller's part of a cluster's config file; empty or 0: not given.

    Args:
        path: Where it was read from; None: there is no file.
    """

    path: Path | None = None
    port: int = 0
    state_dir: str = ""
    remote_state_dir: str = ""
    durability: Durability = Durability.LOCAL
    scale_groups: tuple[ScaleGroup, ...] = ()
    log_limit_bytes: int = DEFAULT_LIMIT_BYTES
    disk_reserve_bytes: int = DEFAULT_RESERVE_BYTES


def read_cluster_config(path: Path) -> ClusterConfig:
    """Read and check a cluster config. Raises InvalidRequest."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidRequest(f"cannot read the cluster config {path}: {error}") from None
    return parse_cluster_config(content, path)


def parse_cluster_config(content: object, path: Path) -> ClusterConfig:
    """Check what a config file holds. Raises InvalidRequest."""
    root = _Section(content if content is not None else {}, "", path, _SECTIONS)
    if all(root.has(key) for key in _PROVIDERS):
        raise root.wrong(_PROVIDERS[1], "given", f"left out, as there is a {_PROVIDERS[0]}; a cluster has one of them")
    controller = root.section("controller", _CONTROLLER_KEYS)
    storage = root.section("storage", _STORAGE_KEYS)
    durability = storage.choice("durability", [item.value for item in Durability], Durability.LOCAL.value)
    remote = storage.text("remote_state_dir")
    if durability == Durability.REMOTE.value and not remote:
        raise storage.wrong("durability", durability, "'local', as there is no storage.remote_state_dir")
    groups = tuple(_scale_group(item) for item in root.sections("scale_groups", _GROUP_KEYS))
    names = [group.name for group in groups]
    for name in names:
        if names.count(name) > 1:
            raise root.wrong("scale_groups", name, "a name that no other scale group has")
    return ClusterConfig(
        path=path,
        port=controller.whole("port", 0, 0, 65_535),
        state_dir=os.path.expanduser(controller.text("state_dir")),
        remote_state_dir=remote,
        durability=Durability(durability),
        scale_groups=groups,
        log_limit_bytes=_log_limit(controller),
        disk_reserve_bytes=storage.size("disk_reserve") if storage.has("disk_reserve") else DEFAULT_RESERVE_BYTES,
    )


def _log_limit(controller: "_Section") -> int:
    if not controller.has("log_limit"):
        return DEFAULT_LIMIT_BYTES
    limit = controller.size("log_limit")
    if limit < _LEAST_LOG_LIMIT:
        raise controller.wrong("log_limit", limit, "1MB or more")
    return limit


def _scale_group(section: "_Section") -> ScaleGroup:
    name = section.text("name")
    if not name:
        raise section.wrong("name", name, "the name of the scale group")
    device = _device(section.section("accelerator", _ACCELERATOR_KEYS)) if section.has("accelerator") else None
    hosts = 1
    if device is not None and device.kind == "tpu":
        hosts = get_tpu_topology(device.variant).vm_count
    given = section.whole("hosts_per_slice", hosts, 1, _MANY)
    if device is not None and device.kind == "tpu" and given != hosts:
        raise section.wrong("hosts_per_slice", given, f"{hosts}, as a slice of {device.variant} has; or leave it out")
    least = section.whole("min_slices", 0, 0, _MANY)
    most = section.whole("max_slices", max(least, 1), 0, _MANY)
    if most < least:
        raise section.wrong("max_slices", most, f"{least} (min_slices) or more")
    return ScaleGroup(
        name=name,
        host=Resources(section.cores("cpu"), section.size("memory"), section.size("disk"), device),
        hosts_per_slice=given,
        min_slices=least,
        max_slices=most,
        region=section.text("region") or section.text("zone").rpartition("-")[0],
        zone=section.text("zone"),
        preemptible=section.flag("preemptible"),
        attributes=section.texts("attributes"),
    )


def _device(section: "_Section") -> Device:
    kind = section.choice("type", ["tpu", "gpu"], "")
    variant = section.text("variant")
    if not variant:
        raise section.wrong("variant", variant, "a type such as v5p-64 or H100")
    if kind == "tpu":
        try:
            chips = get_tpu_topology(variant).chips_per_vm
        except InvalidRequest as error:
            raise InvalidRequest(f"{section.where('variant')}: {error}") from None
        return Device("tpu", variant, section.whole("count", chips, 1, chips))
    return Device("gpu", variant, section.whole("count", 1, 1, _MANY))


class _Section:
    """A mapping of the file, with where it stands, so that every refusal can say so."""

    def __init__(self, content: object, name: str, path: Path, known: tuple[str, ...]) -> None:
        self._name = name
        self._path = path
        if not isinstance(content, dict):
            raise InvalidRequest(
                f"{path}: {name or 'the file'} is {content!r}; it must be a mapping of {', '.join(known)}"
            )
        self._content: Mapping[Any, Any] = content
        for key in content:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise InvalidRequest(f"{self.where(str(key))} is unknown; {hint}")

    def where(self, key: str) -> str:
        """Return the key's path, for messages."""
        return f"{self._path}: {self._name}{'.' if self._name else ''}{key}"

    def wrong(self, key: str, value: object, allowed: str) -> InvalidRequest:
        return InvalidRequest(f"{self.where(key)} is {value!r}; it must be {allowed}")

    def has(self, key: str) -> bool:
        return self._content.get(key) is not None

    def section(self, key: str, known: tuple[str, ...]) -> "_Section":
        content = self._content.get(key)
        return _Section({} if content is None else content, self._inner(key), self._path, known)

    def sections(self, key: str, known: tuple[str, ...]) -> "list[_Section]":
        items = self._content.get(key) or []
        if isinstance(items, dict):
            return [self._named(key, name, item, known) for name, item in items.items()]
        if not isinstance(items, list):
            raise self.wrong(key, items, "a list, or a mapping by name")
        return [_Section(item, f"{self._inner(key)}[{i}]", self._path, known) for i, item in enumerate(items)]

    def _named(self, key: str, name: object, item: object, known: tuple[str, ...]) -> "_Section":
        """An item of a mapping by name, which may say its name again."""
        where = f"{self._inner(key)}.{name}"
        content = {} if item is None else item
        if isinstance(content, dict) and content.get("name", name) != name:
            raise InvalidRequest(f"{self._path}: {where}.name is {content['name']!r}; it must be {name!r}, or left out")
        return _Section({"name": name, **content} if isinstance(content, dict) else content, where, self._path, known)

    def text(self, key: str) -> str:
        value = self._content.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(key, value, "text")
        return value

    def texts(self, key: str) -> tuple[tuple[str, str], ...]:
        found = self._content.get(key) or {}
        if not isinstance(found, dict) or not all(isinstance(v, str) for kv in found.items() for v in kv):
            raise self.wrong(key, found, "a mapping of texts to texts (put numbers and booleans into quotes)")
        return tuple(found.items())

    def choice(self, key: str, allowed: list[str], default: str) -> str:
        value = self._content.get(key, default)
        if value not in allowed:
            raise self.wrong(key, value, " or ".join(repr(item) for item in allowed))
        return str(value)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self._content.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, value, f"a whole number from {least} to {most}")
        return value

    def cores(self, key: str) -> int:
        value = self._content.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
            raise self.wrong(key, value, "a number of cores above 0")
        return round(value * 1000)

    def size(self, key: str) -> int:
        value = self._content.get(key)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.wrong(key, value, "a size such as 448GB")
        try:
            return parse_size(value, key)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.where(key)}: {error}") from None

    def flag(self, key: str) -> bool:
        value = self._content.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def _inner(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key
