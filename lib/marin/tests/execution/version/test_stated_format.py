"""Output paths equal those of a straightforward implementation of the stated format, whatever the graph and process.

The implementation here reads recipes and nothing else: it shares no code with `marin.execution`. A recipe of a graph
is a list of `[name, value, value]`; a recipe of a value is `[kind, ...]`, see `build`.
"""

from __future__ import annotations

import datetime
import enum
import functools
import hashlib
import json
import pathlib
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marin.execution import (
    Executor,
    ExecutorStep,
    InputName,
    mirrored,
    output_path_of,
    this_output_path,
    versioned,
)

Recipe = list[Any]


# --- the stated format, as it is stated ---


class Reference:
    """Versions of the steps of a recipe, one after the other."""

    def __init__(self, graph: list[Recipe]) -> None:
        self.versions: list[dict[str, Any]] = []
        self.depths: list[int] = []
        self.hashes: list[str] = []
        for name, first, second in graph:
            self.add(name, ["config", first, second])

    def add(self, name: str, config: Recipe) -> None:
        self.config: dict[str, Any] = {}
        self.blocking: list[int] = []
        self.pseudo: list[int] = []
        self.walk(config, "")
        version = {
            "name": name,
            "config": self.config,
            "dependencies": [self.quote(index) for index in self.blocking],
        }
        if self.pseudo:
            version["pseudo_dependencies"] = [self.quote(index) for index in self.pseudo]
        self.versions.append(version)
        self.depths.append(1 + max((self.depths[index] for index in self.blocking), default=-1))
        self.hashes.append(hashlib.md5(json.dumps(version, sort_keys=True).encode()).hexdigest()[:6])

    def quote(self, index: int) -> Any:
        version = self.versions[index]
        return version if self.depths[index] <= 4 else f"{version['name']}-{self.hashes[index]}"

    def refer(self, index: int, name: str | None, *, blocking: bool) -> str:
        text = f"DEP[{len(self.blocking) + len(self.pseudo)}]" + (f"/{name}" if name else "")
        (self.blocking if blocking else self.pseudo).append(index)
        return text

    def reference(self, recipe: Recipe) -> str | None:
        match recipe:
            case ["step", index]:
                return self.refer(index, None, blocking=True)
            case ["input", index, name]:
                return self.refer(index, name, blocking=True)
            case ["nonblocking", index, name]:
                return self.refer(index, name, blocking=False)
            case ["hardcoded", path]:
                return str(path)
        return None

    def walk(self, recipe: Recipe, path: str) -> None:
        if (text := self.reference(recipe)) is not None:
            self.config[path] = text
            return
        below = path + "." if path else ""
        match recipe:
            case ["versioned", value]:
                self.config[path] = self.encode(value)
            case ["mirrored", value]:
                self.walk(value, path)
            case ["list" | "tuple", items]:
                for index, item in enumerate(items):
                    self.walk(item, f"{below}[{index}]")
            case ["pair", left, right]:
                self.walk(left, f"{below}[0]")
                self.walk(right, f"{below}[1]")
            case ["dict" | "ordered", items]:
                for key, item in items:
                    self.walk(item, below + key)
            case ["config", first, second]:
                self.walk(first, below + "first")
                self.walk(second, below + "second")
            case ["set_of_one", item, _]:
                self.walk(item, f"{below}[0]")

    def encode(self, recipe: Recipe) -> Any:
        if (text := self.reference(recipe)) is not None:
            return text
        match recipe:
            case ["plain", value]:
                return value
            case ["list" | "tuple", items]:
                return [self.encode(item) for item in items]
            case ["pair", left, right]:
                return [self.encode(left), self.encode(right)]
            case ["dict" | "ordered", items]:
                return {key: self.encode(item) for key, item in items}
            case ["config", first, second]:
                return {"first": self.encode(first), "second": self.encode(second)}
            case ["versioned", value]:
                return self.encode(value)
            case ["numbers", numbers]:
                return str(set(sorted(set(numbers))))  # noqa: C414 - the order in which they are added shows
            case ["colour", name]:
                return {"RED": "red", "BLUE": 2}[name]
            case ["path", text]:
                return text
            case ["timedelta", seconds]:
                return {"days": seconds // 86400, "seconds": seconds % 86400, "microseconds": 0}
            case ["numpy", number]:
                return str(number)
            case ["type", "int"]:
                return "<class 'int'>"
        raise AssertionError(recipe)

    def paths(self) -> list[str]:
        return [f"/prefix/{v['name']}-{digits}" for v, digits in zip(self.versions, self.hashes, strict=True)]


# --- any graph ---

NAMES = st.text("abc/", min_size=1, max_size=5).map(lambda text: "n" + text.replace("/", "/x") + "z")
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(allow_nan=True), st.text(max_size=8)
).map(lambda value: ["plain", value])
KEYS = st.text("klm_", min_size=1, max_size=4)
LEAVES = st.one_of(
    SCALARS,
    st.lists(st.integers(-100, 100), max_size=8).map(lambda numbers: ["numbers", numbers]),
    st.sampled_from([["colour", "RED"], ["colour", "BLUE"], ["type", "int"], ["path", "a/b"]]),
    st.integers(0, 10**6).map(lambda seconds: ["timedelta", seconds]),
    st.integers(-9, 9).map(lambda number: ["numpy", number]),
)


def containers(items: st.SearchStrategy[Recipe]) -> st.SearchStrategy[Recipe]:
    keyed = st.lists(st.tuples(KEYS, items).map(list), max_size=3, unique_by=lambda pair: pair[0])
    return st.one_of(
        st.lists(items, max_size=3).map(lambda value: ["list", value]),
        st.lists(items, max_size=3).map(lambda value: ["tuple", value]),
        st.tuples(items, items).map(lambda pair: ["pair", *pair]),
        keyed.map(lambda value: ["dict", value]),
        keyed.map(lambda value: ["ordered", value]),
        st.tuples(items, items).map(lambda pair: ["config", *pair]),
    )


@functools.cache
def references(before: int) -> st.SearchStrategy[Recipe]:
    fixed = st.sampled_from(["raw/x", "gs://elsewhere/x"]).map(lambda path: ["hardcoded", path])
    if not before:
        return fixed
    index, name = st.integers(0, before - 1), st.sampled_from([None, "f", "a/b"])
    return st.one_of(
        fixed,
        index.map(lambda i: ["step", i]),
        st.tuples(index, name).map(lambda pair: ["input", *pair]),
        st.tuples(index, name).map(lambda pair: ["nonblocking", *pair]),
    )


@functools.cache
def values(before: int) -> st.SearchStrategy[Recipe]:
    inputs = references(before)
    inside = st.recursive(st.one_of(LEAVES, inputs), containers, max_leaves=5)
    versioned = inside.map(lambda value: ["versioned", value])
    unversioned = st.one_of(LEAVES, st.sampled_from([["output", None], ["output", "f"]]))
    mirrored = st.sampled_from([["mirrored", ["versioned", ["plain", "raw/y"]]], ["mirrored", ["hardcoded", "raw/z"]]])
    in_sets = st.tuples(inputs, st.lists(st.integers(), max_size=3)).map(lambda pair: ["set_of_one", *pair])
    return st.recursive(st.one_of(versioned, inputs, unversioned, mirrored, in_sets), containers, max_leaves=6)


@st.composite
def graphs(draw: st.DrawFn) -> list[Recipe]:
    count = draw(st.integers(1, 8))
    return [[f"{draw(NAMES)}{index}", draw(values(index)), draw(values(index))] for index in range(count)]


# --- the steps of a graph ---


PREFIX = "/prefix"


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Config:
    first: Any = None
    second: Any = None


def do_nothing(_config: Any) -> None:
    """Every step's function."""


def build(recipe: list[Any], steps: list[ExecutorStep[Any]]) -> Any:
    """The value of a recipe."""
    kind, *rest = recipe
    match kind:
        case "plain":
            return rest[0]
        case "versioned":
            return versioned(build(rest[0], steps))
        case "mirrored":
            return mirrored(build(rest[0], steps))
        case "step":
            return steps[rest[0]]
        case "input":
            return output_path_of(steps[rest[0]], rest[1])
        case "nonblocking":
            return output_path_of(steps[rest[0]], rest[1]).nonblocking()
        case "hardcoded":
            return InputName.hardcoded(rest[0])
        case "output":
            return this_output_path(rest[0])
        case "list":
            return [build(item, steps) for item in rest[0]]
        case "tuple":
            return tuple(build(item, steps) for item in rest[0])
        case "pair":
            return Pair(build(rest[0], steps), build(rest[1], steps))
        case "dict":
            return {key: build(item, steps) for key, item in rest[0]}
        case "ordered":
            return OrderedDict((key, build(item, steps)) for key, item in rest[0])
        case "config":
            return Config(build(rest[0], steps), build(rest[1], steps))
        case "set_of_one":
            return {build(rest[0], steps), *rest[1]}
        case "numbers":
            return set(rest[0])
        case "colour":
            return Colour[rest[0]]
        case "path":
            return pathlib.PurePosixPath(rest[0])
        case "timedelta":
            return datetime.timedelta(seconds=rest[0])
        case "numpy":
            return np.int64(rest[0])
        case "type":
            return {"int": int, "Config": Config}[rest[0]]
    raise AssertionError(kind)


def build_graph(recipe: list[Any]) -> list[ExecutorStep[Any]]:
    """The steps of a recipe; each may refer to those before it."""
    steps: list[ExecutorStep[Any]] = []
    for name, first, second in recipe:
        config = Config(build(first, steps), build(second, steps))
        steps.append(ExecutorStep(name=name, fn=do_nothing, config=config))
    return steps


def paths_of(steps: list[ExecutorStep[Any]], order: list[int]) -> list[str]:
    """The output paths of steps that an executor takes in, in the given order."""
    executor = Executor(PREFIX, f"{PREFIX}/experiments")
    for index in order:
        executor.compute_version(steps[index])
    return [executor.output_paths[step] for step in steps]


# --- the tests ---

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

any_number = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@any_number
@given(graphs(), st.randoms())
def test_paths_are_as_stated_in_any_order(graph: list[Recipe], dice: random.Random) -> None:
    steps = build_graph(graph)
    order = list(range(len(steps)))
    dice.shuffle(order)
    assert paths_of(steps, order) == Reference(graph).paths()
