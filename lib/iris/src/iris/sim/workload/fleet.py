"""Reads fleets from options and YAML files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iris.domain.ids import WorkerId
from iris.sim.workload.distributions import load_yaml
from iris.sim.workload.fields import Fields
from iris.sim.workload.model import Machine
from rigging.errors import InvalidRequest

_OPTION: Final = re.compile(r"(?:(?P<slices>\d+)x)?(?P<hosts>\d+):(?P<rest>.+)")
_FORM: Final = "e.g. '10:cpu=32,memory_gib=128' or '4x8:cpu=208,memory_gib=400,device=tpu v5p-64,devices=4'"


def read_fleet(path: Path) -> list[Machine]:
    """Return the hosts of a fleet file: `groups`, each with name, hosts, slices, cpu, ... Raises InvalidRequest."""
    fields = Fields(str(path), load_yaml(path))
    groups = fields.raw("groups")
    fields.finish()
    if not isinstance(groups, list) or not groups:
        raise InvalidRequest(f"{path}: groups is {groups!r}; it must be a list of host groups")
    found: list[Machine] = []
    for number, values in enumerate(groups, 1):
        if not isinstance(values, dict):
            raise InvalidRequest(f"{path}, group {number}: {values!r} is not a mapping of names to values")
        found += _machines(Fields(f"{path}, group {number}", values), f"g{number}")
    return found


def fleet_of_options(options: Sequence[str]) -> list[Machine]:
    """Return the hosts of `--fleet` options: `[SLICESx]HOSTS:name=value,...`. Raises InvalidRequest."""
    found: list[Machine] = []
    for number, text in enumerate(options, 1):
        match = _OPTION.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"--fleet {text!r} is not of the form [SLICESx]HOSTS:name=value,...; {_FORM}")
        values: dict[str, Any] = {"hosts": match["hosts"]}
        if match["slices"]:
            values["slices"] = match["slices"]
        for item in match["rest"].split(","):
            name, equals, value = item.partition("=")
            if not equals:
                raise InvalidRequest(f"--fleet {text!r}: {item!r} is not name=value; {_FORM}")
            values[name.strip()] = value.strip()
        found += _machines(Fields(f"--fleet {text!r}", values), f"g{number}")
    return found


def _machines(fields: Fields, default_name: str) -> Iterator[Machine]:
    name = fields.text("name", default_name)
    hosts = fields.count("hosts", 1)
    slices = fields.count("slices", 0, 0)
    capacity = fields.resources()
    attribute = fields.text("slice_attribute", "tpu-name")
    attributes: Mapping[str, str] = {}
    if fields.has("attributes"):
        given = fields.raw("attributes")
        if not isinstance(given, dict):
            raise InvalidRequest(f"{fields.place}: attributes is {given!r}; it must be a mapping")
        attributes = {str(key): str(value) for key, value in given.items()}
    fields.finish()
    if not slices:
        for index in range(hosts):
            yield Machine(WorkerId(f"{name}-{index}"), capacity, attributes)
        return
    for number in range(slices):
        for index in range(hosts):
            own = {**attributes, attribute: f"{name}-{number}", "tpu-worker-id": str(index)}
            yield Machine(WorkerId(f"{name}-{number}-{index}"), capacity, own)
