"""Output paths equal those of a straightforward implementation of the stated format, whatever the graph and process.

The implementation here reads recipes (see recipes.py) and nothing else: it shares no code with `marin.execution`.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

RECIPES = Path(__file__).with_name("recipes.py")

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


# --- the tests ---


@pytest.fixture(scope="module")
def recipes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recipes", RECIPES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["recipes"] = module
    spec.loader.exec_module(module)
    return module


class OtherProcess:
    """Builds graphs under another PYTHONHASHSEED."""

    def __init__(self, seed: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(RECIPES)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def paths(self, graph: list[Recipe]) -> list[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(graph) + "\n")
        self.process.stdin.flush()
        return list(json.loads(self.process.stdout.readline()))


@pytest.fixture(scope="module")
def others() -> Iterator[list[OtherProcess]]:
    found = [OtherProcess(seed) for seed in ("0", "1", "4242")]
    yield found
    for other in found:
        other.process.communicate()


pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

any_number = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@any_number
@given(graphs(), st.randoms())
def test_paths_are_as_stated_in_any_order(recipes: ModuleType, graph: list[Recipe], dice: random.Random) -> None:
    steps = recipes.build_graph(graph)
    order = list(range(len(steps)))
    dice.shuffle(order)
    assert recipes.paths_of(steps, order) == Reference(graph).paths()


@pytest.mark.process
@any_number
@given(graphs())
def test_paths_are_the_same_in_every_process(others: list[OtherProcess], graph: list[Recipe]) -> None:
    expected = Reference(graph).paths()
    for other in others:
        assert other.paths(graph) == expected


@any_number
@given(graphs(), st.data())
def test_another_versioned_value_is_another_path_for_all_that_depend(
    recipes: ModuleType, graph: list[Recipe], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(graph) - 1))
    changed = copy.deepcopy(graph)
    for which, number in ((graph, 1), (changed, 2)):
        which[index][1] = ["list", [which[index][1], ["versioned", ["dict", [["k", ["plain", number]]]]]]]
    before, after = ([*recipes.paths_of(recipes.build_graph(g), list(range(len(g))))] for g in (graph, changed))
    affected = {index}
    for later in range(index + 1, len(graph)):
        if affected & set(_steps_named(graph[later])):
            affected.add(later)
    assert {i for i, (one, other) in enumerate(zip(before, after, strict=True)) if one != other} == affected


def _steps_named(recipe: Any) -> Iterator[int]:
    if isinstance(recipe, list):
        if len(recipe) >= 2 and recipe[0] in ("step", "input", "nonblocking") and isinstance(recipe[1], int):
            yield recipe[1]
        for part in recipe:
            yield from _steps_named(part)


@any_number
@given(graphs())
def test_configs_come_out_with_every_placeholder_replaced(recipes: ModuleType, graph: list[Recipe]) -> None:
    """What a function sees has the shape of its config, and no placeholder in it; the config itself is as it was."""
    from marin.execution import Executor, InputName, OutputName, VersionedValue
    from marin.execution.config.values import MirroredValue

    steps = recipes.build_graph(graph)
    before = [repr(step.config) for step in steps]
    executor = Executor("/prefix", "/prefix/experiments")
    for step in steps:
        executor.compute_version(step)
    assert [repr(step.config) for step in steps] == before
    for step in steps:
        text = repr(executor.configs[step])
        kinds = (InputName, OutputName, VersionedValue, MirroredValue, type(step))
        assert not any(f"{kind.__name__}(" in text for kind in kinds)
        assert type(executor.configs[step]) is type(step.config)
