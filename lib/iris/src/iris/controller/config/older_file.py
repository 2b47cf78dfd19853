"""Translates cluster files of iris's predecessor, and explains the keys that have no effect here."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from iris.controller.config.document import Document
from iris.controller.config.keys import BUDGET, DEFAULTS, GROUP, ROOT
from iris.controller.config.kinds import Kind, Table
from iris.controller.config.older_keys import BUDGET_PLACES, DEFAULTS_PLACES, FAMILIES, FILE, GROUP_PLACES
from iris.controller.config.sections import Section, shown, walk
from rigging.text.yaml_files import Filled, composed

_PROVIDERS: Final = ("worker_provider", "kubernetes_provider")
_PLACES: Final = ("region", "zone", "preemptible")
_COUNTS: Final = ("min_slices", "max_slices", "buffer_slices")
_OF_POOLS: Final = ("resources", "preemptible", "worker", "slice_template", "capacity_type", "hourly_price")


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


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated cluster file, which `cluster_file` validates, and the skipped keys."""

    document: Document
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    """A translated item of a list.

    Args:
        content: In our form.
        place: Where the item is in the file. origins: Where its keys are in the file.
    """

    content: dict[str, Any]
    place: str
    origins: Mapping[str, str]


def translate(file: Document) -> Translation:
    """Translate a cluster file. A file in the current form is unchanged.

    Keys unknown in both forms, and contradictory values, become problems of the document.
    """
    content = {} if file.content is None else file.content
    root = Section(content, "", file, FILE)
    if all(root.has(key) for key in _PROVIDERS):
        root.refuse(_PROVIDERS[1], f"left out, as there is a {_PROVIDERS[0]}; a cluster has one of them", "given")
    left_out = [
        LeftOut(section.where(key), section.keys[key].why)
        for section, key in walk(root)
        if section.keys[key].why and section.content[key] not in (None, {}, [])
    ]
    made = _pruned(root.content, ROOT)
    origins: dict[str, str] = {}
    if root.has("defaults"):
        defaults = _folded(root.section("defaults"), DEFAULTS, DEFAULTS_PLACES)
        made["defaults"] = defaults.content
        origins |= _below("defaults", defaults)
    groups = [_group(section) for section in root.sections("scale_groups")]
    for pool in root.sections("tpu_pools"):
        groups += _pool(pool, file)
    budgets = [item for section in root.sections("user_budgets") for item in _budgets(section)]
    for name, items in (("scale_groups", groups), ("user_budgets", budgets)):
        if items:
            made[name] = _as_given(root.content.get(name), items)
            for number, item in enumerate(items):
                at = f"{name}.{item.content['name']}" if isinstance(made[name], dict) else f"{name}[{number}]"
                origins |= _below(at, item)
    return Translation(file.with_content(made, origins), tuple(dict.fromkeys(left_out)))


def _below(place: str, item: _Item) -> dict[str, str]:
    return {place: item.place, **{f"{place}.{key}": origin for key, origin in item.origins.items()}}


def _as_given(given: object, items: list[_Item]) -> object:
    """Return items in the file's form, as a list or by name."""
    names = {name: item.content for item in items if isinstance(name := item.content.get("name"), str)}
    if isinstance(given, dict) and len(names) == len(items):
        return names
    return [item.content for item in items]


def _pruned(content: Mapping[Any, Any], table: Table) -> dict[Any, Any]:
    """Return a section with our keys only, and without sections that have none of them."""
    made: dict[Any, Any] = {}
    for key, value in content.items():
        if key not in table:
            continue
        if table[key].kind is not Kind.SECTION:
            made[key] = value
        elif not isinstance(value, dict | None):
            made[key] = value  # to be refused
        elif (inner := _pruned(value or {}, table[key].keys)) or value == {}:
            made[key] = inner
    return made


def _folded(section: Section, table: Table, places: Mapping[str, tuple[str, ...]]) -> _Item:
    """Return a section in our form, with the values that the predecessor has in other places."""
    made = _pruned(section.content, table)
    origins = {}
    for key, others in places.items():
        convert = _CONVERTED.get(key, lambda value: value)
        found = [
            (place, _as_filled(value, convert))
            for place in (key, *others)
            if (value := _at(section.content, place)) is not None
        ]
        for place, value in found[1:]:
            if value != found[0][1]:
                first = f"{section.where(found[0][0])} is {shown(found[0][1])}"
                section.refuse(place, f"left out, as {first}; give it once", value)
        if found:
            _put(made, key, found[0][1])
            origins[key] = f"{section.name}.{found[0][0]}"
    return _Item(made, section.name, origins)


def _at(content: Mapping[Any, Any], place: str) -> Any:
    """Return the value at a dotted place; None if there is none."""
    key, _, rest = place.partition(".")
    found = content.get(key)
    if not rest:
        return found
    return _at(found, rest) if isinstance(found, dict) else None


def _put(content: dict[Any, Any], place: str, value: object) -> None:
    key, _, rest = place.partition(".")
    if not rest:
        content[key] = value
    elif isinstance(content.setdefault(key, {}), dict):
        _put(content[key], rest, value)


def _as_filled(value: object, convert: Callable[[object], object]) -> object:
    """Return a converted value. One from a variable is still not shown."""
    made = convert(value)
    return Filled(made, value.source) if isinstance(value, Filled) and isinstance(made, str) else made


def _group(section: Section, origins: Mapping[str, str] | None = None) -> _Item:
    item = _folded(section, GROUP, GROUP_PLACES)
    made = item.content
    attributes = _at(section.content, "worker.attributes")
    further = attributes.items() if isinstance(attributes, dict) else ()
    kept = {key: value for key, value in further if key not in _PLACES}
    origins = {**item.origins, **(origins or {})}
    if kept:
        given = made.get("attributes")
        made["attributes"] = {**(given if isinstance(given, dict) else {}), **kept}
        origins |= {} if given else {"attributes": f"{section.name}.worker.attributes"}
    if _at(made, "accelerator.type") == "cpu":
        del made["accelerator"]
    return _Item(made, item.place, origins)


def _pool(pool: Section, file: Document) -> Iterable[_Item]:
    """Return the scale groups of a pool: one for each size and zone. The smallest size gets a scarce quota first."""
    zones, sizes = pool.content.get("zones") or [], pool.content.get("sizes") or {}
    if not isinstance(zones, list) or not zones or not all(isinstance(zone, str) for zone in zones):
        pool.refuse("zones", "a list of zones such as [us-east5-b]", zones)
        return
    if not isinstance(sizes, dict) or not sizes or not all(str(size).isdecimal() for size in sizes):
        pool.refuse("sizes", "a mapping of sizes to numbers of slices, such as {16: {max_slices: 4}}", sizes)
        return
    family = pool.content.get("family", "")
    family = FAMILIES.get(family, family) if isinstance(family, str) else ""
    priority = [pool.content[key] for key in ("base_priority", "priority") if pool.has(key)]
    tiers = {size: tier for tier, size in enumerate(sorted(sizes, key=lambda size: int(str(size))), 1)}
    for size, given in sizes.items():
        counts = {key: value for key, value in given.items() if key in _COUNTS} if isinstance(given, dict) else {}
        for zone in zones:
            name = pool.content["name"]
            content = {
                "name": composed("tpu_", name, f"_{size}-", zone),
                "accelerator": {"type": "tpu", "variant": composed(family, "-", size)},
                "zone": zone,
                "quota_pool": pool.content.get("quota_pool") or composed(name, "-", zone),
                "allocation_tier": tiers[size],
                **({"priority": priority[0]} if priority else {}),
                **{key: pool.content[key] for key in _OF_POOLS if pool.has(key)},
                **counts,
            }
            origins = {key: f"{pool.name}.sizes.{size}.{key}" for key in counts}
            origins["accelerator.variant"] = f"{pool.name}.sizes.{size}"
            yield _group(Section(content, pool.name, file, FILE["scale_groups"].keys), origins)


def _budgets(section: Section) -> Iterable[_Item]:
    """Return the budget of each user of an entry."""
    item = _folded(section, BUDGET, BUDGET_PLACES)
    users = section.names("user_ids")
    for user in users:
        yield _Item({**item.content, "name": user}, item.place, item.origins)
    if not users:
        yield item


def _capacity(value: object) -> object:
    if not isinstance(value, str):
        return value
    word = re.sub(r"^CAPACITY_TYPE_", "", value).lower().replace("_", "-")
    return "spot" if word == "preemptible" else word


def _flag(value: object) -> object:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


def _kind(value: object) -> object:
    return re.sub(r"^ACCELERATOR_TYPE_", "", value).lower() if isinstance(value, str) else value


def _band(value: object) -> object:
    return re.sub(r"^PRIORITY_BAND_", "", value).lower() if isinstance(value, str) else value


_CONVERTED: Final[Mapping[str, Callable[[object], object]]] = MappingProxyType(
    {"capacity_type": _capacity, "preemptible": _flag, "accelerator.type": _kind, "max_band": _band}
)
