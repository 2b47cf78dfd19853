"""Versioned values and inputs where they could not count: each is refused, with its field, and never ignored."""

import array
import collections
import dataclasses
import datetime
import enum
import functools
import io
import itertools
import re
import struct
import types
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from typing import Any, NamedTuple

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
import pytest

from marin.execution.config.encode import encode
from marin.execution.config.instantiate import instantiate_config
from marin.execution.config.partial_text import left_out_of_text
from marin.execution.config.step import ExecutorStep, output_path_of
from marin.execution.config.values import mirrored, this_output_path, versioned
from marin.execution.config.walk import collect_dependencies_and_version
from marin.execution.jobs.remote import remote
from marin.execution.run.pipeline import Executor
from marin.execution.step_spec import StepSpec
from rigging.errors import InvalidRequest

RAW: ExecutorStep[None] = ExecutorStep(name="raw", fn=None, config=None)


def version_of(config: Any) -> dict[str, Any]:
    return collect_dependencies_and_version(config).version


def refusal_of(config: Any) -> str:
    with pytest.raises(InvalidRequest) as refused:
        version_of(config)
    return str(refused.value)


@dataclass
class Plain:
    lr: Any
    data: Any = None


class Model(pydantic.BaseModel):
    lr: Any
    data: Any = None


@pytest.mark.parametrize(
    "take_apart", [lambda **v: dataclasses.asdict(Plain(**v)), lambda **v: Model(**v).model_dump()]
)
@pytest.mark.parametrize(
    ("placeholder", "what"),
    [
        (versioned(1), "a versioned value"),
        (RAW, "a step"),
        (output_path_of(RAW), "an input"),
        (this_output_path("x"), "an output path"),
        (mirrored("x"), "a mirrored path"),
    ],
)
def test_what_asdict_leaves_of_a_placeholder(take_apart: Callable[..., Any], placeholder: Any, what: str) -> None:
    assert f"field 'deep.[0].data': what was {what} has been taken apart" in refusal_of(
        {"deep": [take_apart(lr=1, data=placeholder)]}
    )
    assert version_of({"deep": [take_apart(lr=1)]}) == {}


def test_the_mark_by_which_they_are_known_is_no_part_of_any_version_or_text() -> None:
    nested = [versioned(1), mirrored("m")]
    assert encode(nested, "f", lambda _: "") == [{"value": 1}, {"value": "m", "budget_gb": 10}]
    assert repr(nested) == "[VersionedValue(value=1), MirroredValue(value='m', budget_gb=10)]"
    assert dataclasses.replace(versioned(1), value=2) == versioned(2)  # type: ignore[type-var]


@pytest.mark.parametrize(
    "text",
    [f"{RAW!r}", f"{versioned(1)}", f"{[RAW / 'a']}", f"{[versioned(1)]}", f"{(mirrored('m'),)}"],
)
def test_a_text_that_describes_a_placeholder(text: str) -> None:
    described = f"--in {text}"
    for config in (
        {"cmd": described}, [described], Plain(described), Plain(versioned(described)),
        {"cmd": versioned(["x", described])}, Model(lr=described),
    ):  # fmt: skip
        assert "has the description of a step, an input or a versioned value in it" in refusal_of(config)
    assert version_of({"cmd": "--in InputName"}) == {}


@dataclass
class MakesTexts:
    lr: Any
    name: str | None = None
    command: list[str] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.command = ["train", f"--lr={self.lr}"]
        if self.name == "":
            self.name = f"run-{self.lr}"


def test_a_text_that_a_class_makes_of_its_fields_is_made_of_the_values() -> None:
    assert version_of(MakesTexts(versioned(0.1))) == {"lr": 0.1}
    assert instantiate_config(MakesTexts(versioned(0.1)), None, {}, "/p").command == ["train", "--lr=0.1"]
    with pytest.raises(InvalidRequest, match="field 'name': the text 'run-VersionedValue"):
        instantiate_config(MakesTexts(versioned(0.1), ""), None, {}, "/p")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"opt.lr": versioned(1), "opt": {"lr": versioned(5)}}, "opt.lr"),
        ({"a": [versioned(1)], "a.[0]": RAW}, "a.[0]"),
        ({"a.b": RAW, "a": Plain(1), "": {"a.b": versioned(1)}}, "a.b"),
    ],
)
def test_two_places_that_are_written_alike(config: Any, field: str) -> None:
    assert f"field {field!r}: two places of the config are written so" in refusal_of(config)
    assert version_of({"opt.lr": versioned(1), "opt": {"mu": versioned(5)}}) == {"opt.lr": 1, "opt.mu": 5}


@dataclass
class Cached:
    lr: Any

    @functools.cached_property
    def schedule(self) -> list[Any]:
        return [self.lr] * 2


@dataclass
class WithInitVar:
    lr: Any
    source: InitVar[Any] = None

    def __post_init__(self, source: Any) -> None:
        self.sources = [source, self.lr]


@dataclass
class Derives:
    lr: Any
    keeps: bool = False

    def __post_init__(self) -> None:
        self.schedule = [versioned(1)] if self.keeps else [self.lr]


class CachedModel(pydantic.BaseModel):
    lr: Any

    @functools.cached_property
    def schedule(self) -> list[Any]:
        return [self.lr]


class ListWithAttribute(list[Any]):
    note: Any = None


class TextWithAttribute(str):
    note: Any = None


def noted(obj: Any) -> Any:
    obj.note = versioned("x")
    return obj


def looked_at(obj: Any) -> Any:
    assert obj.schedule
    return obj


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (looked_at(Cached(versioned(3))), "schedule"),
        (noted(Cached(1)), "note"),
        (WithInitVar(1, RAW), "sources"),
        (looked_at(CachedModel(lr=versioned(1))), "schedule"),
        (noted(ListWithAttribute()), "note"),
        (noted(TextWithAttribute("x")), "note"),
    ],
)
def test_attributes_that_are_no_fields(config: Any, name: str) -> None:
    assert f"field 'c.{name}': the attribute {name!r}, which is no field, holds" in refusal_of({"c": config})


def test_what_a_constructor_derives_is_made_of_the_values() -> None:
    assert version_of(Derives(versioned(3))) == {"lr": 3}
    assert instantiate_config(Derives(versioned(3)), None, {}, "/p").schedule == [3]
    assert looked_at(Cached(3)).schedule == instantiate_config(looked_at(Cached(3)), None, {}, "/p").schedule
    with pytest.raises(InvalidRequest, match="'schedule', which is no field, holds"):
        instantiate_config(Derives(versioned(3), keeps=True), None, {}, "/p")


class Other:
    def __init__(self, lr: Any) -> None:
        self.lr = lr

    def method(self) -> None: ...


@pytest.mark.parametrize(
    ("config", "place"),
    [
        (Other(versioned(1)).method, ".__self__.lr"),
        (pd.DataFrame({"n": [1], "a": [versioned(1)]}), "['a'].flat[0]"),
        (pd.Series([RAW], name="s"), "['s'].flat[0]"),
    ],
)
def test_methods_and_tables_of_objects(config: Any, place: str) -> None:
    assert f"at {place}, where it would neither count" in refusal_of({"f": config})
    assert version_of({"f": Other(1).method, "t": pd.DataFrame({"n": [1], "a": ["x"]})}) == {}


ZONE = b"TZif" + bytes(16) + struct.pack(">6I", 0, 0, 0, 0, 1, 4) + bytes(6) + b"UTC\0"


class Hidden(pydantic.BaseModel):
    lr: float = 1
    seed: int = pydantic.Field(0, repr=False)


class Holds(pydantic.BaseModel):
    inner: Any


class OwnText(Hidden):
    def __str__(self) -> str:
        return f"{self.lr} {self.seed}"


class Private(pydantic.BaseModel):
    _seed: int = pydantic.PrivateAttr(0)
    _cache: dict[str, int] = pydantic.PrivateAttr(default_factory=dict)


def private(seed: int) -> Private:
    model = Private()
    model._seed = seed
    return model


class Offset(datetime.tzinfo):
    """A time zone whose text is its address."""


@attrs.define
class HiddenAttrs:
    lr: float = 1
    seed: int = attrs.field(default=0, repr=False)


@dataclass
class HiddenField:
    seed: int = dataclasses.field(default=0, repr=False)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (Hidden(), "its field 'seed'"),
        (Holds(inner=[{"m": Hidden()}]), "its field 'seed'"),
        (HiddenAttrs(), "its field 'seed'"),
        (Holds(inner=HiddenField()), "its field 'seed'"),
        (Holds(inner=np.arange(5)), "the whole of an array"),
        (Holds(inner=pydantic.SecretStr("x")), "a secret"),
        (np.random.default_rng(1), "the state of a random generator"),
        (private(1), "its field '_seed'"),
        (pd.CategoricalDtype(["a"]), "its categories"),
        (zoneinfo.ZoneInfo.from_file(io.BytesIO(ZONE)), "the rules of a time zone without a name"),
        (np.random.RandomState(1), "the state of a random generator"),
        (re.compile("x" * 300), "more than 200 characters of a pattern"),
        (pa.schema([("a", pa.int32())], metadata={"k": "v"}), "the metadata of a schema"),
        (pa.field("a", pa.int32(), metadata={"k": "v"}), "the metadata of a schema"),
    ],
)
def test_values_that_differ_and_have_one_text(value: Any, what: str) -> None:
    assert f"does not show {what}, so that would not count" in refusal_of({"v": versioned(value)})


@pytest.mark.parametrize(
    "value",
    [Holds(inner=[1, {"a": 2.5}, np.float64(3)]), OwnText(), private(0), zoneinfo.ZoneInfo("UTC"),
     pc.field("a").isin([1, 2]), re.compile("abc"), pa.schema([("a", pa.int32())]),
     array.array("i", [1, 2]), collections.UserString("abc"), np.float64(3)],
)  # fmt: skip
def test_texts_that_show_the_value_or_are_the_classes_own(value: Any) -> None:
    assert left_out_of_text(value) == ""
    assert version_of({"v": versioned(value)}) == {"v": encode(value, "v", lambda _: "")}
    assert version_of({"v": value}) == {}


@pytest.mark.parametrize(
    ("value", "why"),
    [(pc.field("a").isin(list(range(40))), "is shortened"), (Offset(), "shows a memory address")],
)
def test_texts_that_leave_out_or_differ_from_run_to_run(value: Any, why: str) -> None:
    assert why in refusal_of({"v": versioned(value)})
    assert version_of({"v": value}) == {}


class OfItself(Sequence[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        if index:
            raise IndexError
        return OfItself()


def test_a_sequence_of_sequences_of_its_own_kind() -> None:
    for config in ({"a": OfItself()}, {"a": versioned(OfItself())}):
        assert "nested too deeply" in refusal_of(config)


@pytest.mark.parametrize("name", ["/train.parquet", "gs://b/x"])
def test_an_absolute_path_is_not_below_a_step(name: str) -> None:
    for join in (lambda: RAW / name, lambda: RAW.as_input_name().cd(name), lambda: output_path_of(RAW, name)):
        with pytest.raises(InvalidRequest, match="an absolute path is not below the output of step 'raw'"):
            join()


class Pair(NamedTuple):
    a: Any
    b: Any


class PairOfOne(Pair):
    def __new__(cls, both: Any) -> "PairOfOne":
        return cls._make((both, both))


def test_counters_and_named_tuples_get_their_values() -> None:
    config = {"c": collections.Counter({"a": 2, "b": versioned(1)}), "t": PairOfOne(versioned(3))}
    assert version_of(config) == {"c.b": 1, "t.[0]": 3, "t.[1]": 3}
    made = instantiate_config(config, None, {}, "/p")
    assert made == {"c": collections.Counter({"a": 2, "b": 1}), "t": (3, 3)}
    assert type(made["t"]) is PairOfOne


class Size(enum.Enum):
    SMALL = Plain(versioned(1))
    PLAIN = Plain(1)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"x": (RAW / name for name in "ab")}, "field 'x': a generator can be read only once"),
        ([map(RAW.cd, "ab")], r"field '\[0\]': a map can be read only once"),
        (Plain(1, iter([RAW])), "field 'data': a list_iterator can be read only once"),
        (Plain(1, itertools.chain([RAW])), "field 'data': a chain can be read only once"),
        ({"x": types.SimpleNamespace(y=iter([RAW]))}, r"field 'x': an object of type SimpleNamespace holds .* at \.y"),
        ({"size": Size.SMALL}, r"field 'size': an object of type Size holds .* at \.value\.lr"),
    ],
)
def test_iterators_and_values_of_enums(config: Any, what: str) -> None:
    assert re.match(what, refusal_of(config))
    assert version_of({"size": Size.PLAIN, "lr": versioned(1)}) == {"lr": 1}


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held

    def run(self, config: Any) -> None: ...

    __call__ = run


@pytest.mark.parametrize("placeholder", [versioned(1), RAW, RAW / "x", this_output_path()])
@pytest.mark.parametrize(
    "bound",
    [
        lambda held: functools.partial(print, held),
        lambda held: functools.partial(print, end=[held]),
        Holder,
        lambda held: Holder(held).run,
        lambda held: remote(functools.partial(print, held)),
    ],
)
def test_what_is_bound_to_a_steps_function(bound: Callable[[Any], Any], placeholder: Any) -> None:
    executor = Executor("/p", "/p/experiments")
    with pytest.raises(InvalidRequest, match=r"step 'n': its function .* at .* pass it in the step's config"):
        executor.compute_version(ExecutorStep("n", bound(placeholder), None))
    executor.compute_version(ExecutorStep("n", bound(1), None))


def test_specs_may_be_bound_to_a_function_and_become_steps() -> None:
    spec = StepSpec(name="s", fn=print)
    step = spec.as_executor_step()
    executor = Executor("/p", "/p/experiments")
    steps = [
        ExecutorStep(f"n{number}", fn, versioned(number))
        for number, fn in enumerate((step.fn, functools.partial(print, spec), functools.partial(print, step.fn)))
    ]
    for each in steps:
        executor.compute_version(each)
    assert executor.steps == steps, "what is bound to them has become no step of the run"
    assert [executor.versions[each]["config"] for each in steps] == [{"": number} for number in range(3)]
    assert not any(executor.versions[each]["dependencies"] for each in steps)


def test_a_fixed_path_is_a_text() -> None:
    with pytest.raises(InvalidRequest, match=r"step 'n': override_output_path ExecutorStep\(name='raw'\) is not"):
        ExecutorStep("n", None, None, override_output_path=RAW)  # type: ignore[arg-type]
