"""Configs of every kind of container: each wrapper counts and is replaced, or the config is refused."""

from __future__ import annotations

import collections
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.execution import (
    Executor,
    ExecutorStep,
    InputName,
    OutputName,
    VersionedValue,
    collect_dependencies_and_version,
    compute_output_path,
    instantiate_config,
    mirrored,
    output_path_of,
    this_output_path,
    versioned,
)
from marin.execution.config.hidden import find_inside
from marin.execution.config.instantiate import rebuild
from marin.execution.config.step import PLACEHOLDERS
from marin.execution.jobs.step_call import mirror_budget_gb
from rigging.errors import InvalidRequest

sys.path.insert(0, os.path.dirname(__file__))
import config_kinds
from config_kinds import RAW, REFUSED, WALKED, Attrs, DefaultsModel, DerivedAttrs, Frozen, Model, Plain, Thing, several


def filled(config: Any) -> Any:
    return instantiate_config(config, "/p/out", {RAW: "/p/raw-1"}, "/p")


@pytest.mark.parametrize("kind", WALKED)
def test_what_a_container_holds_counts_and_is_replaced(kind: str) -> None:
    make = WALKED[kind]
    assert len({compute_output_path("n", make(versioned(x)), prefix="/p") for x in (0.1, 0.2)}) == 2
    assert collect_dependencies_and_version(make(RAW)).dependencies == [RAW]
    for placeholder, value in [(versioned(3), 3), (RAW / "f", "/p/raw-1/f"), (this_output_path("o"), "/p/out/o")]:
        config = make(placeholder)
        result = filled(config)
        assert type(result) is type(config)
        assert find_inside(result, lambda item: isinstance(item, PLACEHOLDERS)) is None
        found = find_inside(result, lambda item, value=value: type(item) is type(value) and item == value)
        assert found is not None, result
        assert find_inside(config, lambda item: isinstance(item, PLACEHOLDERS)) is not None, "the config itself changed"
    assert mirror_budget_gb(make(mirrored("a", budget_gb=3))) == 3


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize(
    "placeholder", [VersionedValue(1), RAW, RAW / "x", OutputName("o")], ids=lambda x: type(x).__name__
)
def test_what_cannot_be_replaced_is_refused_with_step_and_field(kind: str, placeholder: Any) -> None:
    step = ExecutorStep(name="train", fn=print, config=Plain(REFUSED[kind](placeholder)))
    with pytest.raises(
        InvalidRequest, match=r"step 'train': field 'x': .* holds (Versioned|ExecutorStep|InputName|Output)"
    ):
        Executor("/p", "/p/experiments").compute_version(step, is_pseudo_dep=False)


def test_an_object_without_placeholders_stays_as_it_is() -> None:
    thing = Thing([Thing({1: collections.UserDict(a=1)})])
    thing.x.append(thing)  # a circle
    assert filled(Plain(thing)).x is thing
    assert collect_dependencies_and_version(Plain(thing)).version == {}


def test_models_keep_what_else_they_hold() -> None:
    model = Model(x=versioned(1), y=[2])
    model._kept = RAW
    result = filled(model)
    assert (result.x, result.y, result._kept, result.model_fields_set) == (1, [2], "/p/raw-1", {"x", "y"})
    assert collect_dependencies_and_version(model).version == {"x": 1, "_kept": "DEP[0]"}
    assert filled(DefaultsModel()).lr == 0.1
    assert filled(Attrs(x=this_output_path())).x == "/p/out"
    assert filled(DerivedAttrs(x=RAW)).length == len("/p/raw-1"), "derived from the placeholder, not from the path"
    deque = filled(collections.deque([RAW], maxlen=7))
    assert (list(deque), deque.maxlen) == (["/p/raw-1"], 7)
    chain = filled(collections.ChainMap({"a": 1}, {"b": RAW}))
    assert (chain["b"], chain.maps[1:]) == ("/p/raw-1", [{"b": "/p/raw-1"}])


class Stubborn(Frozen):
    """A mapping that cannot be made from a dict alone."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__({"a": first, "b": second})


class Forgetful(Frozen):
    """A mapping that makes of a dict something else."""

    def __init__(self, content: Any) -> None:
        super().__init__(dict.fromkeys(content, "changed"))
        self._content.update({"k": VersionedValue(1)})


def test_a_container_that_cannot_be_made_again_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"Stubborn in a config .* missing 1 required .*; use a dict"):
        filled(Plain(Stubborn(RAW, 1)))
    with pytest.raises(InvalidRequest, match=r"Forgetful in a config .*the new one holds something else\); use a dict"):
        filled(Plain(Forgetful({})))


def test_what_a_class_makes_anew_is_found_before_the_function_gets_it() -> None:
    class Maker(Thing):
        pass

    from dataclasses import dataclass, field

    @dataclass
    class Remade:
        path: Any
        again: Any = field(init=False, default=None)

        def __post_init__(self) -> None:
            self.again = VersionedValue(1)

    with pytest.raises(InvalidRequest, match=r"field 'again': VersionedValue\(value=1\) is still there"):
        filled(Remade(this_output_path()))


@pytest.mark.parametrize(
    "make", [MappingProxyType, collections.UserDict, lambda d: collections.deque([d]), lambda d: ValueError(d), Thing]
)
def test_versioned_values_of_which_only_the_text_counts(make: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"field 'x': the versioned \w+ holds ExecutorStep\(name='raw'\)"):
        compute_output_path("n", Plain(versioned(make({"a": RAW}))), prefix="/p")
    with pytest.raises(InvalidRequest, match=r"field 'x': the versioned \w+ holds the set .* hash seed"):
        compute_output_path("n", Plain(versioned(make({"a": {"p", "q"}}))), prefix="/p")


def test_the_encodings_of_versioned_values_stay() -> None:
    for value, text in [
        (MappingProxyType({"a": 1}), "{'a': 1}"),
        (collections.UserDict(a={1, 2}), "{'a': {1, 2}}"),
        (collections.deque([1]), "deque([1])"),
        (Model(x=1), "x=1 y=None"),
    ]:
        assert collect_dependencies_and_version(versioned(value)).version == {"": text}


def test_a_mirrored_value_has_one_budget() -> None:
    with pytest.raises(ValueError, match="is mirrored already"):
        mirrored(mirrored("a", budget_gb=5))


def test_the_budget_of_a_mirrored_value_is_no_part_of_a_path() -> None:
    configs = [Plain(versioned(mirrored("a", budget_gb=gb))) for gb in (5, 10, 50)]
    assert len({compute_output_path("n", config, prefix="/p") for config in configs}) == 1
    assert collect_dependencies_and_version(configs[0]).version == {"x": {"value": "a", "budget_gb": 10}}


@pytest.mark.parametrize("thing", [RAW, RAW / "x", output_path_of(RAW), this_output_path(), InputName.hardcoded("a")])
def test_steps_and_references_do_not_become_text(thing: Any) -> None:
    for use in (str, "{}".format, lambda x: f"{x}/y", lambda x: x + "/y", lambda x: "y/" + x):
        with pytest.raises(InvalidRequest, match=r"has no text yet .* for a path below"):
            use(thing)
    assert repr(thing) in f"{thing!r} {[thing]}"


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "a/.."])
def test_references_that_leave_their_place_are_refused(name: str) -> None:
    for make in (this_output_path, InputName.hardcoded, RAW.cd, output_path_of(RAW).cd):
        with pytest.raises(InvalidRequest, match=r"'\.\.' part would leave"):
            make(name)


def test_references_that_stay_are_not() -> None:
    assert InputName.hardcoded("gs://b/../c").name == "gs://b/../c"
    assert InputName.hardcoded("/data/../x").name == "/data/../x"
    assert [this_output_path(name) for name in ("a..b/", "..c")] == [OutputName("a..b/"), OutputName("..c")]
    for name in ("/x", "gs://b/x"):
        with pytest.raises(InvalidRequest, match=r"an absolute path is not below the step's output"):
            this_output_path(name)


@dataclass(frozen=True)
class Tree:
    """The plan of a random config: a kind of container and its parts, or a leaf.

    Attributes:
        kind: A name in WALKED or REFUSED; None for a leaf.
        parts: Trees; of a leaf what stands there.
    """

    kind: str | None
    parts: tuple[Any, ...]

    def make(self) -> Any:
        """The config."""
        if self.kind is None:
            return self.parts[0]
        content = several([part.make() for part in self.parts])
        try:
            return {**WALKED, **REFUSED}[self.kind](content)
        except TypeError:  # a dict key must have a hash
            assert self.kind.startswith("dict key")
            return [content]

    def leaves(self) -> list[Any]:
        """Its leaves, in order."""
        return [self.parts[0]] if self.kind is None else [leaf for part in self.parts for leaf in part.leaves()]

    def hides(self) -> bool:
        """Whether a wrapper or a reference stands where it cannot be replaced."""
        if self.kind is None:
            return False
        made_a_list = self.kind.startswith("dict key") and isinstance(self.make(), list)
        if self.kind in REFUSED and not made_a_list:
            return any(isinstance(leaf, PLACEHOLDERS) for leaf in self.leaves())
        return any(part.hides() for part in self.parts)


LEAVES = [1, "a", None, 0.5, versioned(7), RAW, RAW / "f", this_output_path(), mirrored(versioned("m"))]


@settings(max_examples=300, deadline=None)
@given(
    tree=st.recursive(
        st.sampled_from(LEAVES).map(lambda leaf: Tree(None, (leaf,))),
        lambda inner: st.builds(
            Tree,
            # Each container twice, so that not nearly all configs are refused.
            st.sampled_from([*WALKED, *WALKED, *REFUSED]),
            st.lists(inner, min_size=1, max_size=3).map(tuple),
        ),
        max_leaves=8,
    )
)
def test_any_config_is_resolved_whole_or_refused(tree: Tree) -> None:
    config = tree.make()
    if tree.hides():
        for use in (collect_dependencies_and_version, filled):
            with pytest.raises(InvalidRequest):
                use(config)
        return
    collected = collect_dependencies_and_version(config)
    wrappers = [leaf for leaf in tree.leaves() if isinstance(leaf, PLACEHOLDERS)]
    counting = [leaf for leaf in wrappers if not isinstance(leaf, OutputName)]
    assert len(collected.version) == len(counting)
    references = [leaf for leaf in counting if isinstance(leaf, (ExecutorStep, InputName))]
    assert collected.dependencies == [RAW] * len(references)
    result = filled(config)
    assert find_inside(result, lambda item: isinstance(item, PLACEHOLDERS)) is None
    assert (rebuild(config, lambda _: 1) is config) == (not wrappers)


def test_processes_with_other_hash_seeds_agree() -> None:
    program = Path(config_kinds.__file__)
    texts = {
        subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout
        for seed in (1, random.randrange(2, 1000))
    }
    assert len(texts) == 1
    lines = next(iter(texts)).splitlines()
    pairs = 2 * len(WALKED) ** 2
    assert len(lines) == pairs + config_kinds.RANDOM_SAMPLES
    assert all(json.loads(line) for line in lines[:pairs]), "a sample without a version tells nothing"
    assert sum(len(json.loads(line)) > 1 for line in lines[pairs:]) > config_kinds.RANDOM_SAMPLES / 2
