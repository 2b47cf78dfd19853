"""Translates cluster files of iris's predecessor, and explains the keys that have no effect here."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from iris.controller.config.older_keys import (
    CONTROLLER_REASONS,
    DISAGREE,
    FAMILIES,
    GROUP_KEYS_THERE,
    POOL_KEYS,
    REASONS,
    RESOURCE_KEYS,
    SIZE_KEYS,
    STORAGE_REASONS,
    TEMPLATE_KEYS,
    TEMPLATE_REASONS,
    WORKER_KEYS,
)
from iris.controller.config.sections import (
    BUDGET_KEYS,
    CONTROLLER_KEYS,
    GROUP_KEYS,
    SECTIONS,
    STORAGE_KEYS,
    Document,
    Section,
)
from rigging.errors import InvalidRequest

_PROVIDERS: Final = ("worker_provider", "kubernetes_provider")
_PLACES: Final = ("region", "zone", "preemptible")
_CAPACITIES: Final[Mapping[str, bool]] = MappingProxyType(
    {"preemptible": True, "spot": True, "on-demand": False, "reserved": False}
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A key without an effect here.

    Args:
        where: File, line and key. why: Why the key is not needed, or its replacement.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(slots=True)
class Translation:
    """A translated cluster file, which `cluster_file` validates, and the skipped keys."""

    document: Document
    left_out: list[LeftOut] = field(default_factory=list)


def translate(file: Document) -> Translation:
    """Translate a cluster file. A file in the current form is unchanged.

    Raise InvalidRequest for a key unknown in both forms, and for contradictory values.
    """
    content = {} if file.content is None else file.content
    root = Section(content, "", file, (*SECTIONS, *REASONS, "tpu_pools"))
    if all(root.has(key) for key in _PROVIDERS):
        raise root.wrong(_PROVIDERS[1], "given", f"left out, as there is a {_PROVIDERS[0]}; a cluster has one of them")
    return _Translator(file, root).result()


class _Translator:
    """Translates one file."""

    def __init__(self, file: Document, root: Section) -> None:
        self._file = file
        self._root = root
        self._left_out: list[LeftOut] = []

    def result(self) -> Translation:
        root = self._root
        made = {key: root.content[key] for key in SECTIONS if key in root.content}
        for key in root.content:
            if key in REASONS:
                self._leave_out(root, key, REASONS[key])
        self._keep(made, "controller", CONTROLLER_KEYS, CONTROLLER_REASONS)
        self._keep(made, "storage", STORAGE_KEYS, STORAGE_REASONS)
        groups = [self._group(item) for item in root.sections("scale_groups", (*GROUP_KEYS, *GROUP_KEYS_THERE))]
        for pool in root.sections("tpu_pools", POOL_KEYS):
            groups += self._pool(pool)
        if groups:
            made["scale_groups"] = self._as_given(root.content.get("scale_groups"), groups)
        if root.has("user_budgets"):
            known = (*BUDGET_KEYS, "user", "user_id", "limit", "budget_limit")
            budgets = [self._budget(item) for item in root.sections("user_budgets", known)]
            made["user_budgets"] = self._as_given(root.content.get("user_budgets"), budgets)
        return Translation(self._file.with_content(made), self._left_out)

    def _as_given(self, given: object, items: list[dict[str, Any]]) -> object:
        """Return items in the file's form, as a list or by name, so that their keys keep their lines."""
        names = [item.get("name") for item in items]
        by_name = isinstance(given, dict) and len(set(map(str, names))) == len(names)
        return {item["name"]: item for item in items} if by_name else items

    def _leave_out(self, section: Section, key: str, why: str) -> None:
        if section.content.get(key) not in (None, {}, []):
            self._left_out.append(LeftOut(section.where(key), why))

    def _keep(self, made: dict[str, Any], name: str, own: tuple[str, ...], reasons: Mapping[str, str]) -> None:
        """Copy the keys of a section that exist in both forms."""
        section = self._root.section(name, (*own, *reasons))
        for key in section.content:
            if key in reasons:
                self._leave_out(section, key, reasons[key])
        if any(key in reasons for key in section.content):
            made[name] = {key: value for key, value in section.content.items() if key in own}

    def _group(self, section: Section) -> dict[str, Any]:
        made = {key: value for key, value in section.content.items() if key in GROUP_KEYS}
        resources = section.section("resources", RESOURCE_KEYS)
        template = section.section("slice_template", TEMPLATE_KEYS)
        worker = section.section("worker", WORKER_KEYS)
        places = [template.section(name, ("zone", *TEMPLATE_REASONS)) for name in ("gcp", "coreweave")]
        attributes = worker.section("attributes", tuple(map(str, worker.content.get("attributes") or {})))
        for key in ("priority", "quota_pool", "allocation_tier"):
            self._leave_out(section, key, "jobs are placed where they fit; no group comes before another")
        for item in (*places, template):
            for key in item.content:
                if key in TEMPLATE_REASONS:
                    self._leave_out(item, key, TEMPLATE_REASONS[key])
        for key in worker.content:
            if key != "attributes":
                self._leave_out(worker, key, "jobs bring their own environment; workers have no settings of a group")
        self._set(made, section, "cpu", [(resources, "cpu")])
        self._set(made, section, "memory", [(resources, "ram"), (resources, "memory")])
        self._set(made, section, "disk", [(resources, "disk")])
        self._set(made, section, "hosts_per_slice", [(section, "num_vms"), (template, "num_vms")])
        self._set(made, section, "min_slices", [(section, "buffer_slices")])
        self._set(
            made,
            section,
            "zone",
            [(section, "zones"), *((item, "zone") for item in places), (attributes, "zone")],
            _one,
        )
        self._set(made, section, "region", [(attributes, "region")])
        of_capacity = [(item, "capacity_type") for item in (resources, template)]
        for item, key in of_capacity:
            if item.has(key) and not isinstance(_preemptible(item.content[key]), bool):
                raise item.wrong(key, item.content[key], f"one of {', '.join(_CAPACITIES)}")
        plain = [(item, "preemptible") for item in (resources, template, attributes)]
        self._set(made, section, "preemptible", [*of_capacity, *plain], _preemptible)
        further = {key: value for key, value in attributes.content.items() if key not in _PLACES}
        if further:
            made["attributes"] = {**(made.get("attributes") or {}), **further}
        self._accelerator(made, section, resources, template)
        return made

    def _accelerator(self, made: dict[str, Any], section: Section, resources: Section, template: Section) -> None:
        found: dict[str, Any] = {}
        kinds = [(section, "accelerator_type"), (template, "accelerator_type"), (resources, "device_type")]
        variants = [(section, "accelerator_variant"), (template, "accelerator_variant"), (resources, "device_variant")]
        self._set(found, section, "type", kinds, _kind)
        self._set(found, section, "variant", variants)
        if found.get("type") == "cpu":
            return
        counts = [(resources, key) for key in ("device_count", "tpu_count", "gpu_count")]
        self._set(found, section, "count", counts)
        if found and "accelerator" not in made:
            made["accelerator"] = found

    def _set(
        self,
        made: dict[str, Any],
        section: Section,
        key: str,
        places: list[tuple[Section, str]],
        convert: Callable[[object], object] = lambda value: value,
    ) -> None:
        """Set a key to the value from any of several places. Raise InvalidRequest if the places contradict each
        other.
        """
        values = [(place.where(name), convert(place.content[name])) for place, name in places if place.has(name)]
        if made.get(key) is not None:
            values.insert(0, (section.where(key), made[key]))
        for where, value in values[1:]:
            if value != values[0][1]:
                raise InvalidRequest(DISAGREE.format(where=where, value=value, other=values[0][0], first=values[0][1]))
        if values:
            made[key] = values[0][1]

    def _pool(self, pool: Section) -> list[dict[str, Any]]:
        """Return the scale groups of a pool: one for each size and zone."""
        family = FAMILIES.get(pool.text("family"), pool.text("family"))
        name = pool.text("name")
        zones = pool.content.get("zones") or []
        if not isinstance(zones, list) or not zones or not all(isinstance(zone, str) for zone in zones):
            raise pool.wrong("zones", zones, "a list of zones such as [us-east5-b]")
        for key in ("base_priority", "priority"):
            self._leave_out(pool, key, "jobs are placed where they fit; no group comes before another")
        sizes = pool.content.get("sizes") or {}
        if not isinstance(sizes, dict) or not sizes:
            raise pool.wrong("sizes", sizes, "a mapping of sizes to numbers of slices, such as {16: {max_slices: 4}}")
        made = []
        for size in sizes:
            counts = Section(sizes[size] or {}, f"{pool.name}.sizes.{size}", self._file, SIZE_KEYS)
            for zone in zones:
                content = {
                    "name": f"tpu_{name}_{size}-{zone}",
                    "accelerator": {"type": "tpu", "variant": f"{family}-{size}"},
                    "zone": zone,
                    **{key: pool.content[key] for key in ("resources", "preemptible", "worker") if pool.has(key)},
                    **{key: value for key, value in counts.content.items() if key in SIZE_KEYS},
                }
                made.append(self._group(Section(content, pool.name, self._file, (*GROUP_KEYS, *GROUP_KEYS_THERE))))
        return made

    def _budget(self, section: Section) -> dict[str, Any]:
        made = {key: value for key, value in section.content.items() if key in BUDGET_KEYS}
        self._set(made, section, "name", [(section, "user"), (section, "user_id")])
        self._set(made, section, "max_weight", [(section, "limit"), (section, "budget_limit")])
        band = made.get("max_band")
        if isinstance(band, str):
            made["max_band"] = re.sub(r"^PRIORITY_BAND_", "", band).lower()
        return made


def _one(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _preemptible(value: object) -> object:
    if isinstance(value, str):
        word = re.sub(r"^CAPACITY_TYPE_", "", value).lower().replace("_", "-")
        return {"true": True, "false": False, **_CAPACITIES}.get(word, value)
    return value


def _kind(value: object) -> object:
    return re.sub(r"^ACCELERATOR_TYPE_", "", value).lower() if isinstance(value, str) else value
