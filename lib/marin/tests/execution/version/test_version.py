"""Versions: what makes them differ, what may not, what is refused, and that large graphs stay cheap."""

import datetime
import functools
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.execution import (
    Executor,
    ExecutorStep,
    compute_output_path,
    mirrored,
    output_path_of,
    versioned,
)
from marin.execution.config.placeholder import OMIT_DEFAULT_METADATA
from marin.execution.jobs.remote import remote
from marin.execution.version.graph import DependencyCycle
from marin.execution.version.step_version import VersionCache, hash_text_md5
from rigging.errors import Conflict, InvalidRequest

MakeStep = Callable[..., ExecutorStep[Any]]

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def plain_version(step: ExecutorStep[Any]) -> tuple[dict[str, Any], int]:
    """The version by the book for configs that are a dict of one versioned value and a list of steps."""
    config: dict[str, Any] = {"value": step.config["value"].value}
    dependencies, depth = [], 0
    for index, dependency in enumerate(step.config["deps"]):
        config[f"deps.[{index}]"] = f"DEP[{index}]"
        version, below = plain_version(dependency)
        depth = max(depth, below + 1)
        digest = hashlib.md5(json.dumps(version, sort_keys=True).encode()).hexdigest()
        dependencies.append(version if below <= 4 else f"{dependency.name}-{digest[:6]}")
    return {"name": step.name, "config": config, "dependencies": dependencies}, depth


@st.composite
def graphs(draw: st.DrawFn) -> list[ExecutorStep[Any]]:
    """Steps that each depend on some earlier ones."""
    steps: list[ExecutorStep[Any]] = []
    for index in range(draw(st.integers(1, 9))):
        chosen = draw(st.lists(st.sampled_from(steps), max_size=2)) if steps else []
        config = {"value": versioned(draw(JSON_VALUES)), "deps": chosen}
        steps.append(ExecutorStep(name=f"s{index}", fn=None, config=config))
    return steps


@settings(max_examples=60, deadline=None)
@given(steps=graphs(), data=st.data())
def test_equal_to_a_straightforward_implementation_in_any_order(
    steps: list[ExecutorStep[Any]], data: st.DataObject
) -> None:
    executor = Executor("/p", "/p/experiments")
    for step in data.draw(st.permutations(steps)):
        executor.compute_version(step)
    for step in steps:
        expected = json.dumps(plain_version(step)[0], sort_keys=True)
        assert executor.version_strs[step] == expected


@settings(max_examples=60, deadline=None)
@given(one=JSON_VALUES, other=JSON_VALUES)
def test_paths_are_equal_exactly_when_the_encodings_are(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    paths = [compute_output_path("n", {"v": versioned(value)}, prefix="/p") for value in (one, other)]
    assert (paths[0] == paths[1]) == same


SAMPLES = """
from marin.execution import *
a, b = (ExecutorStep(name=name, fn=None, config={"v": versioned(name)}) for name in "ab")
for config in (
    {a, b}, {"x": {b / "f", a, "plain"}}, versioned({a, b.cd("z")}), versioned([{b}, {1, 2, 3}, frozenset({"k"})]),
    [versioned("t"), {"s": versioned({"q": (1, None)})}], {versioned("one"), versioned("two"), versioned("three")},
):
    print(compute_output_path("n", config, prefix="/p"))
"""


@pytest.mark.e2e
def test_same_path_under_every_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SAMPLES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2", "3")
    }
    assert len(outputs) == 1
    assert len(set(outputs.pop().split())) == 6


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "memory address"),
        (lambda: None, "memory address"),
        (functools.partial(test_same_path_under_every_hash_seed), "memory address"),
        ({"a", "b"}, "hash seed"),
        ({None, 1}, "hash seed"),
        (frozenset({Colour.RED, 1}), "hash seed"),
        ({(1, "a"), (2, "b")}, "hash seed"),
        ([{"deep": {"a", "b"}}], "hash seed"),
        ({1: 1, "a": 2}, "mixes keys"),
        ({(1, 2): 1}, "no JSON form"),
        ({Colour.RED: 1}, "use <Colour.RED: 'red'>.value"),
        (np.zeros(3), "array"),
        ({object()}, "memory address"),
    ],
)
def test_unstable_values_are_refused_naming_step_and_field(make_step: MakeStep, value: Any, reason: str) -> None:
    step = make_step("train/model", {"k": [versioned(value)]})
    with pytest.raises(ValueError, match=reason) as caught:
        VersionCache().version_of(step)
    assert "step 'train/model'" in str(caught.value)
    assert "field 'x.k.[0]" in str(caught.value)


def test_a_text_that_only_looks_like_an_address_is_a_value() -> None:
    assert compute_output_path("n", versioned("at 0x7f0000000000"), prefix="/p").startswith("/p/n-")
    assert compute_output_path("n", versioned(b"at 0x7f0000000000"), prefix="/p").startswith("/p/n-")


def test_a_config_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidRequest, match="contains itself"):
        compute_output_path("n", {"x": endless}, prefix="/p")
    with pytest.raises(InvalidRequest, match="contains itself"):
        compute_output_path("n", {"x": versioned(endless)}, prefix="/p")


def test_two_inputs_of_one_name_in_a_set_are_refused(make_step: MakeStep) -> None:
    twins = {make_step("twin", versioned(1)), make_step("twin", versioned(2))}
    for config in (twins, versioned(twins)):
        with pytest.raises(InvalidRequest, match="use a list"):
            compute_output_path("n", {"x": config}, prefix="/p")


def test_what_is_not_versioned_does_not_count(make_step: MakeStep) -> None:
    cache = VersionCache()
    assert cache.version_of(make_step("n", 1)).digest == cache.version_of(make_step("n", [2, {3: 4}])).digest
    with_fn = make_step("n", 1, description="d", fn=print)
    assert cache.version_of(make_step("n", 1)).digest == cache.version_of(with_fn).digest


def test_an_input_inside_a_versioned_list_counts_and_is_a_dependency(make_step: MakeStep) -> None:
    a = make_step("a", versioned(1))
    version = VersionCache().version_of(
        make_step("n", a, versioned([1, {"k": a / "f"}, output_path_of(a).nonblocking()]))
    )
    assert version.version["config"] == {"x": "DEP[0]", "y": [1, {"k": "DEP[1]/f"}, "DEP[2]"]}
    assert version.dependencies == (a, a)
    assert version.pseudo_dependencies == (a,)


def test_the_budget_of_a_mirrored_value_does_not_count(make_step: MakeStep) -> None:
    cache = VersionCache()
    versions = {cache.version_of(make_step("n", mirrored(versioned("d"), budget))).digest for budget in (1, 10)}
    assert len(versions) == 1


def test_dict_subclasses_and_timedeltas(make_step: MakeStep) -> None:
    value = OrderedDict(b=datetime.timedelta(seconds=1), a=1)
    version = VersionCache().version_of(make_step("n", versioned(value)))
    assert version.version["config"]["x"] == {"b": {"days": 0, "seconds": 1, "microseconds": 0}, "a": 1}


def test_integer_keys_are_sorted_as_numbers() -> None:
    expected = json.dumps({"config": {"": {2: 0, 10: 0}}, "dependencies": [], "name": "n"}, sort_keys=True)
    step = ExecutorStep(name="n", fn=None, config=versioned({10: 0, 2: 0}))
    assert bytes(VersionCache().version_of(step).text).decode() == expected


def test_a_marked_field_is_left_out_while_it_has_its_default(make_step: MakeStep) -> None:
    @dataclass(frozen=True)
    class Grown:
        old: int = 1
        new: list[int] = field(default_factory=list, metadata={OMIT_DEFAULT_METADATA: True})

    configs = [
        VersionCache().version_of(make_step("n", versioned(value))).version["config"]["x"]
        for value in (Grown(), Grown(new=[2]))
    ]
    assert configs == [{"old": 1}, {"old": 1, "new": [2]}]


def test_a_cycle_is_reported_with_the_names_of_its_steps(make_step: MakeStep) -> None:
    inputs: list[Any] = []
    first = make_step("first", inputs)
    second = make_step("second", first)
    inputs.append(make_step("third", second))
    with pytest.raises(DependencyCycle, match="second -> first -> third -> second"):
        Executor("/p", "/p/experiments").compute_version(second)


def test_a_step_that_is_taken_in_is_needed_unless_it_is_said_to_be_named_only(make_step: MakeStep) -> None:
    """A step that is only named need not run: were that the default, a run would leave out what it was asked for."""
    executor = Executor("/p", "/p/experiments")
    first = make_step("first")
    executor.compute_version(first, is_pseudo_dep=True)
    assert executor.is_pseudo_dep[first]
    executor.compute_version(first)
    assert not executor.is_pseudo_dep[first]


def test_two_versions_on_one_pinned_path_are_refused(make_step: MakeStep) -> None:
    executor = Executor("/p", "/p/experiments")
    first = make_step("one", versioned(1), override_output_path="same")
    executor.compute_version(first)
    executor.compute_version(make_step("one", versioned(1), override_output_path="same"))
    with pytest.raises(Conflict, match=r"/p/same: step 'one' .*'x': 1.* step 'two' .*'x': 2"):
        executor.compute_version(make_step("two", versioned(2), override_output_path="same"))


def test_two_functions_with_one_name_and_version_are_refused(make_step: MakeStep) -> None:
    executor = Executor("/p", "/p/experiments")
    executor.compute_version(make_step("n", versioned(1), fn=print))
    with pytest.raises(Conflict, match=r"two steps 'n' have one version .*, builtins.print and builtins.repr"):
        executor.compute_version(make_step("n", versioned(1), fn=repr))
    executor.compute_version(make_step("n", versioned(1), fn=remote(print)))  # the same function, elsewhere


def test_two_functions_at_one_pinned_path_are_refused(make_step: MakeStep) -> None:
    executor = Executor("/p", "/p/experiments")
    executor.compute_version(make_step("n", versioned(1), fn=print, override_output_path="same"))
    with pytest.raises(Conflict, match=r"two steps 'n' have one version .*, builtins.print and builtins.repr"):
        executor.compute_version(make_step("n", versioned(1), fn=repr, override_output_path="same"))


def test_one_function_with_other_values_bound_to_it_is_another(make_step: MakeStep) -> None:
    executor = Executor("/p", "/p/experiments")
    for _ in range(2):
        executor.compute_version(make_step("n", versioned(1), fn=functools.partial(print, sep="1")))
    for fn in (functools.partial(print, sep="2"), remote(functools.partial(print, sep="2")), print):
        with pytest.raises(Conflict, match=r"two steps 'n' .* builtins.print with different values bound to it"):
            executor.compute_version(make_step("n", versioned(1), fn=fn))


def test_a_real_collision_of_six_digits_is_refused() -> None:
    seen: dict[str, int] = {}
    number = 0
    while (path := compute_output_path("n", versioned(number), prefix="/p")) not in seen:
        seen[path] = number
        number += 1
    executor = Executor("/p", "/p/experiments")
    executor.compute_version(ExecutorStep(name="n", fn=None, config=versioned(seen[path])))
    with pytest.raises(Conflict, match=r"/p/n-.*'n' \(version \w+, config .* and step 'n' .*rename one"):
        executor.compute_version(ExecutorStep(name="n", fn=None, config=versioned(number)))


def test_equal_steps_are_one(make_step: MakeStep) -> None:
    executor = Executor("/p", "/p/experiments")
    first, second = make_step("n", versioned(1)), make_step("n", versioned(1))
    for step in (first, second):
        executor.compute_version(step)
    assert executor.canonicalize(second) is first
    assert executor.output_paths[first] == executor.output_paths[second]


def test_a_chain_of_thousands_needs_no_recursion(make_step: MakeStep) -> None:
    step = make_step("s0", versioned(0))
    for index in range(1, 3000):
        step = make_step(f"s{index}", step)
    executor = Executor("/p", "/p/experiments")
    executor.compute_version(step)
    assert len(executor.steps) == 3000
    assert executor.versions[step]["dependencies"][0].startswith("s2998-")


def test_full_layers_stay_cheap(make_step: MakeStep) -> None:
    layer: list[ExecutorStep[Any]] = []
    for depth in range(10):
        layer = [make_step(f"layer{depth}/step{index}", list(layer)) for index in range(20)]
    started = time.process_time()
    executor = Executor("/p", "/p/experiments")
    for step in layer:
        executor.compute_version(step)
    # Half a second on an idle machine; re-serialising each dependant's version takes minutes and gigabytes.
    assert time.process_time() - started < 10
    assert len(set(executor.output_paths.values())) == 200


def test_long_versions_of_a_layer_are_hashed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a text of its own: two threads read two of them at once, and none waits for another."""
    together = threading.Barrier(2, timeout=20)

    def meeting(text: Any, hasher: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            together.wait()
        return hash_text_md5(text, hasher)

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    source = ExecutorStep("source", repr, versioned("x" * (1 << 20)))
    layer = [ExecutorStep(f"s{index}", repr, {"own": versioned(index), "in": source / "x"}) for index in range(3)]
    cache = VersionCache(meeting)
    last = cache.version_of(ExecutorStep("last", repr, {"in": [step / "x" for step in layer]}))
    versions = [cache.version_of(step) for step in layer]
    for version in (*versions, last):
        text = json.dumps(version.version, sort_keys=True)
        assert version.digest == hashlib.md5(text.encode()).hexdigest()


def test_a_beginning_that_many_share_is_read_once() -> None:
    read: list[int] = []

    def counting(text: Any, hasher: Any) -> Any:
        read.append(text.length)
        return hash_text_md5(text, hasher)

    source = ExecutorStep("source", repr, versioned("x" * (1 << 20)))
    cache = VersionCache(counting)
    versions = [cache.version_of(ExecutorStep(f"s{index}", repr, source / "x")) for index in range(10)]
    assert len({version.digest for version in versions}) == 10
    assert sum(length > 1 << 20 for length in read) == 1
