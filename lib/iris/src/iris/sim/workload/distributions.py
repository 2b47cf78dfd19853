"""Draws workloads from distributions in a YAML file; equal seeds give equal workloads."""

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from iris.sim.workload.fields import Fields
from iris.sim.workload.model import Arrival
from rigging.errors import InvalidRequest
from rigging.text.yaml_files import yaml_errors

Draw = Callable[[random.Random], float]

_SHAPES: Final = {
    "exponential": ("mean",),
    "lognormal": ("median", "sigma"),
    "uniform": ("low", "high"),
}


def draw_workload(path: Path, seed: int) -> list[Arrival]:
    """Return the jobs of all classes of a workload file, by time of submission. Arrivals of a class are a Poisson
    process.

    Raises InvalidRequest with file, class and value.
    """
    top = load_yaml(path)
    fields = Fields(str(path), top)
    hours = fields.number("hours", least=0.0)
    classes = fields.raw("classes")
    fields.finish()
    if not isinstance(classes, list) or not classes:
        raise InvalidRequest(f"{path}: classes is {classes!r}; it must be a list of job classes")
    found: list[Arrival] = []
    for number, values in enumerate(classes, 1):
        place = f"{path}, class {number}"
        if not isinstance(values, dict):
            raise InvalidRequest(f"{place}: {values!r} is not a mapping of names to values")
        found += _draw_class(Fields(place, values), hours * 3600, random.Random(f"{seed} {number}"))
    return sorted(found, key=lambda arrival: arrival.at_s)


def _draw_class(fields: Fields, end_s: float, source: random.Random) -> list[Arrival]:
    name = fields.text("name", "unnamed")
    fields.place = f"{fields.place} ({name})"
    per_hour = fields.number("per_hour")
    users = fields.raw("users")
    users = [fields.user(str(user)) for user in (users if isinstance(users, list) else [users])]
    band, need, group_by = fields.band(), fields.resources(), fields.text("group_by")
    tasks = _distribution(fields, "tasks", 1.0)
    duration = _distribution(fields, "duration_s", None)
    fields.finish()
    found = []
    at_s = source.expovariate(per_hour / 3600) if per_hour else math.inf
    while at_s < end_s:
        count = max(round(tasks(source)), 1)
        user = source.choice(users)
        found.append(Arrival(at_s, user, band, count, need, max(duration(source), 0.001), group_by, fields.place))
        at_s += source.expovariate(per_hour / 3600)
    return found


def _distribution(fields: Fields, name: str, default: float | None) -> Draw:
    """Parse a number, or a mapping of one distribution to its parameters: `{lognormal: {median: 600, sigma: 1}}`."""
    if not fields.has(name) or not isinstance(fields.raw(name), dict):
        fixed = fields.number(name, default)
        return lambda source: fixed + 0 * source.random()
    value: Mapping[str, Any] = fields.raw(name)
    shapes = ", ".join(_SHAPES)
    if len(value) != 1 or next(iter(value)) not in _SHAPES or not isinstance(next(iter(value.values())), dict):
        raise InvalidRequest(f"{fields.place}: {name} is {value!r}; it must be a number or one of {shapes}")
    ((shape, parameters),) = value.items()
    inner = Fields(f"{fields.place}: {name}: {shape}", parameters)
    first, *rest = (inner.number(parameter) for parameter in _SHAPES[shape])
    inner.finish()
    if shape == "exponential":
        return lambda source: source.expovariate(1 / first) if first else 0.0
    (second,) = rest
    if shape == "lognormal":
        return lambda source: first * math.exp(source.gauss(0, second))
    if second < first:
        raise InvalidRequest(f"{inner.place}: high is {second:g}; it must be at least low, {first:g}")
    return lambda source: source.uniform(first, second)


def load_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises InvalidRequest with the file and, for bad YAML, the line."""
    with yaml_errors(path):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise InvalidRequest(f"{path}: its top level is {type(found).__name__}; it must be a mapping")
    return found
