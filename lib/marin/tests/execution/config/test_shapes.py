from __future__ import annotations

import collections
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import attrs
import pytest

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
from marin.execution.config.shapes import Shape, shape_of
from marin.execution.config.visitor import PLACEHOLDERS
from marin.execution.jobs.step_call import mirror_budget_gb
from rigging.errors import InvalidRequest

sys.path.insert(0, os.path.dirname(__file__))
from config_kinds import RAW, REFUSED, WALKED, Attrs, DefaultsModel, DerivedAttrs, Frozen, Model, Plain, Thing


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
        assert getattr(result, "maxlen", None) == getattr(config, "maxlen", None)
        assert len(getattr(result, "maps", ())) == len(getattr(config, "maps", ()))
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


def test_what_a_class_makes_anew_is_found_before_the_function_gets_it() -> None:
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
    with pytest.raises(ValueError, match="is already mirrored"):
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


@pytest.mark.parametrize("outer", WALKED)
def test_a_config_of_any_two_kinds_is_resolved_whole_or_refused(outer: str) -> None:
    for inner, make in WALKED.items():
        for leaves in ([1, "a"], [versioned(7), RAW], [RAW / "f", this_output_path(), 2], [mirrored(versioned("m"))]):
            config = WALKED[outer](make(leaves))
            wrappers = [leaf for leaf in leaves if isinstance(leaf, PLACEHOLDERS)]
            collected = collect_dependencies_and_version(config)
            assert len(collected.version) == len(wrappers) - (OutputName(None) in wrappers), inner
            assert collected.dependencies == [RAW] * sum(isinstance(leaf, ExecutorStep | InputName) for leaf in leaves)
            assert find_inside(filled(config), lambda item: isinstance(item, PLACEHOLDERS)) is None, inner
            assert (rebuild(config, lambda _: 1) is config) == (not wrappers), inner
    for inner in REFUSED.keys() - {"dict key", "dict key tuple"}:
        for use in (collect_dependencies_and_version, filled):
            with pytest.raises(InvalidRequest):
                use(WALKED[outer](REFUSED[inner](versioned([1]))))
            use(WALKED[outer](REFUSED[inner]([1])))


@attrs.define
class Slots:
    x: Any = 1
    y: Any = attrs.field(init=False)


@attrs.define(slots=False)
class Slotless:
    x: Any = 1
    y: Any = attrs.field(init=False)


class OwnSequence(Sequence[Any]):
    def __init__(self, content: Any) -> None:
        self._content = list(content)

    def __getitem__(self, index: Any) -> Any:
        return self._content[index]

    def __len__(self) -> int:
        return len(self._content)


class NamedList(collections.UserList):
    name = ""


class NamedDict(collections.UserDict):
    name = ""


def shape(obj: Any) -> Shape:
    found = shape_of(type(obj))
    assert found is not None
    return found


def parts(obj: Any) -> list[tuple[Any, Any]]:
    return list(shape(obj).parts(obj))


@pytest.mark.parametrize("kind", [Slotless, Slots])
def test_an_attrs_field_that_is_not_set_stays_so(kind: type[Any]) -> None:
    plain = kind(3)
    assert parts(plain) == [("x", 3)], "what is not set is no part"
    changed = shape(plain).make(plain, {"x": 4})
    assert (parts(changed), parts(plain)) == ([("x", 4)], [("x", 3)])
    plain.y = 5
    assert parts(shape(plain).make(plain, {"x": 4})) == [("x", 4), ("y", 5)], "what was set later goes along"


def test_what_a_container_has_besides_stays() -> None:
    for obj, changed in ((NamedList([1, 2]), {0: 5}), (NamedDict(a=1), {"a": 5})):
        obj.name = "mine"
        again = shape(obj).make(obj, changed)
        assert again.name == "mine"
        assert 5 in (again.values() if isinstance(again, NamedDict) else again)
        assert 5 not in (obj.values() if isinstance(obj, NamedDict) else obj)


class Sorting(OwnSequence):
    def __init__(self, content: Any) -> None:
        super().__init__(sorted(content))


class Refusing(Frozen):
    def __init__(self, content: Any) -> None:
        if content.get("a") == "wrong":
            raise TypeError("not this")
        super().__init__(content)


def test_a_container_that_makes_something_else_of_its_parts_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"Sorting in a config .*Sorting\(list\).*something else\); use a list"):
        shape(Sorting([1, 2])).make(Sorting([1, 2]), {0: 5})
    with pytest.raises(InvalidRequest, match=r"Refusing\(dict\), .* failed \(TypeError: not this\); use a dict"):
        shape(Refusing({"a": 1})).make(Refusing({"a": 1}), {"a": "wrong"})
    assert list(shape(Sorting([1, 2])).make(Sorting([1, 2]), {0: 0})) == [0, 2]
