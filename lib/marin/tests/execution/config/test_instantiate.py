"""What a step's function sees: every placeholder filled in, nothing else touched."""

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.execution import (
    ExecutorStep,
    InputName,
    MirroredValue,
    instantiate_config,
    mirrored,
    output_path_of,
    resolve_local_placeholders,
    this_output_path,
    upstream_steps,
    versioned,
)
from rigging.errors import InvalidRequest, NotFound

MakeStep = Callable[..., ExecutorStep[Any]]


@pytest.fixture
def step(make_step: MakeStep) -> ExecutorStep[Any]:
    return make_step("a")


@pytest.fixture
def fill(step: ExecutorStep[Any]) -> Callable[[Any], Any]:
    """Instantiate a config of a step at /p/out that may refer to `step`, which is at /p/a-1."""
    return lambda config: instantiate_config(config, "/p/out", {step: "/p/a-1"}, "/p")


def test_each_placeholder(fill: Callable[[Any], Any], step: ExecutorStep[Any]) -> None:
    config = [
        step,
        step / "f",
        output_path_of(step, "f").nonblocking(),
        this_output_path(),
        this_output_path("o"),
        versioned({"k": [versioned(1), step]}),
        InputName.hardcoded("raw/x"),
        InputName.hardcoded("gs://bucket/x"),
        mirrored("d/x"),
        mirrored(versioned("d/x")),
        mirrored(step / "f"),
        mirrored(InputName.hardcoded("raw/x")),
    ]
    assert fill(config) == [
        "/p/a-1",
        "/p/a-1/f",
        "/p/a-1/f",
        "/p/out",
        "/p/out/o",
        {"k": [1, "/p/a-1"]},
        "/p/raw/x",
        "gs://bucket/x",
        "mirror://d/x",
        "mirror://d/x",
        "mirror://a-1/f",
        "mirror://raw/x",
    ]


T = TypeVar("T")


class Colour(Enum):
    RED = "red"


class Row(NamedTuple):
    a: Any
    b: Any = 2


class Names(OrderedDict[str, Any]):
    """A dict subclass."""


def test_containers_keep_their_type(fill: Callable[[Any], Any], step: ExecutorStep[Any]) -> None:
    grouped: defaultdict[str, Any] = defaultdict(list, k=step)
    config = {
        "row": Row(step),
        "tuple": (1, step),
        "set": {step, "x"},
        "frozen": frozenset({versioned(1)}),
        "names": Names(z=step, a=1),
        "grouped": grouped,
    }
    filled = fill(config)
    assert filled == {
        "row": Row("/p/a-1"),
        "tuple": (1, "/p/a-1"),
        "set": {"/p/a-1", "x"},
        "frozen": frozenset({1}),
        "names": Names(z="/p/a-1", a=1),
        "grouped": {"k": "/p/a-1"},
    }
    assert [type(value) for value in filled.values()] == [type(value) for value in config.values()]
    assert list(filled["names"]) == ["z", "a"]
    assert filled["grouped"]["new"] == []


@dataclass(frozen=True)
class Derived:
    path: Any
    full: str = field(init=False)
    kind: type = int

    def __post_init__(self) -> None:
        # A placeholder has no text; the class is constructed again with the path.
        object.__setattr__(self, "full", f"{self.path}/x" if isinstance(self.path, str) else "")


@dataclass(frozen=True, slots=True)
class Slotted:
    path: Any
    later: Any = field(init=False, default=None)


@dataclass
class WithInitVar:
    path: Any
    scale: InitVar[int]
    scaled: int = field(init=False)

    def __post_init__(self, scale: int) -> None:
        self.scaled = scale * 2


@dataclass(frozen=True)
class Unset:
    path: Any
    missing: int = field(init=False)


@dataclass(frozen=True)
class Box(Generic[T]):
    content: T


@dataclass(frozen=True)
class LabelledBox(Box[T]):
    label: Colour = Colour.RED
    folder: Path = Path("/a")


def test_generic_and_inherited_dataclasses(fill: Callable[[Any], Any], step: ExecutorStep[Any]) -> None:
    box = LabelledBox[Any](Box[Any]([step, np.float32(0.5)]))
    filled = fill(box)
    assert filled == LabelledBox(Box(["/p/a-1", np.float32(0.5)]))
    assert type(filled) is LabelledBox
    assert filled.label is Colour.RED
    assert type(filled.content.content[1]) is np.float32
    assert box.content.content[0] is step


def test_dataclasses(fill: Callable[[Any], Any], step: ExecutorStep[Any]) -> None:
    derived = Derived(step)
    assert fill(derived) == Derived("/p/a-1")
    assert fill(derived).full == "/p/a-1/x"
    assert derived.path is step

    slotted = Slotted(this_output_path())
    object.__setattr__(slotted, "later", step)
    assert (fill(slotted).path, fill(slotted).later) == ("/p/out", "/p/a-1")
    assert slotted.later is step

    filled = fill(WithInitVar(step, scale=4))
    assert (filled.path, filled.scaled) == ("/p/a-1", 8)

    assert fill(Unset(step)).path == "/p/a-1"
    assert upstream_steps([Derived(step), slotted, Derived]) == [step]


@given(
    config=st.recursive(
        st.none() | st.integers() | st.text() | st.builds(Path, st.just("/a")) | st.sampled_from([int, Derived]),
        lambda inner: (
            st.lists(inner)
            | st.tuples(inner)
            | st.dictionaries(st.text() | st.integers(), inner)
            | st.builds(Row, inner, inner)
            | st.builds(Derived, inner)
        ),
        max_leaves=10,
    )
)
def test_a_config_without_placeholders_comes_back_equal(config: Any) -> None:
    before = copy.deepcopy(config)
    assert instantiate_config(config, "/p/out", {}, "/p") == before
    assert upstream_steps(config) == []


def test_what_cannot_be_filled_in_is_named(fill: Callable[[Any], Any], make_step: MakeStep) -> None:
    with pytest.raises(NotFound, match="'stranger' is not known; known steps: a"):
        fill([make_step("stranger")])
    with pytest.raises(InvalidRequest, match="no output path"):
        instantiate_config([this_output_path()], None, {}, "/p")
    with pytest.raises(InvalidRequest, match="expected a path"):
        fill([mirrored(3)])
    with pytest.raises(InvalidRequest, match="relative to the prefix"):
        fill([mirrored("/elsewhere/x")])


def test_local_placeholders_only(step: ExecutorStep[Any]) -> None:
    config = [this_output_path("o"), versioned(1), mirrored("d"), mirrored(step), step / "f"]
    assert resolve_local_placeholders(config, "/p/out") == [
        "/p/out/o",
        1,
        "mirror://d",
        MirroredValue(step),
        step / "f",
    ]
