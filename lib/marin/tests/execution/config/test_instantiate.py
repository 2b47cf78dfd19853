"""What a step's function sees: every placeholder filled in, nothing else touched."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from marin.execution import (
    ExecutorStep,
    InputName,
    instantiate_config,
    mirrored,
    output_path_of,
    resolve_local_placeholders,
    this_output_path,
    upstream_steps,
    versioned,
)
from marin.execution.config.instantiate import mirror_path
from rigging.errors import InvalidRequest, NotFound
from support.marin.steps import MakeStep


@pytest.fixture
def step(make_step: MakeStep) -> ExecutorStep[Any]:
    return make_step("a")


@pytest.fixture
def fill(step: ExecutorStep[Any]) -> Callable[[Any], Any]:
    """Instantiate a config of a step at /p/out that may refer to `step`, which is at /p/a-1."""
    return lambda config: instantiate_config(config, "/p/out", {step: "/p/a-1"}, "/p")


def test_each_placeholder(fill: Callable[[Any], Any], step: ExecutorStep[Any]) -> None:
    for placeholder, value in (
        (step, "/p/a-1"),
        (step / "f", "/p/a-1/f"),
        (output_path_of(step, "f").nonblocking(), "/p/a-1/f"),
        (this_output_path(), "/p/out"),
        (this_output_path("o"), "/p/out/o"),
        (versioned({"k": [versioned(1), step]}), {"k": [1, "/p/a-1"]}),
        (InputName.hardcoded("raw/x"), "/p/raw/x"),
        (InputName.hardcoded("gs://bucket/x"), "gs://bucket/x"),
        (mirrored("d/x"), "mirror://d/x"),
        (mirrored(versioned("d/x")), "mirror://d/x"),
        (mirrored(step / "f"), "mirror://a-1/f"),
        (mirrored(InputName.hardcoded("raw/x")), "mirror://raw/x"),
    ):
        assert fill([placeholder]) == [value]


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


@dataclass
class Noted:
    x: Any
    length: int = field(init=False)
    note: Any = field(init=False)

    def __post_init__(self) -> None:
        self.length = len(str(self.x))


class OfSlots:
    __slots__ = ("x",)


@dataclass
class AboveSlots(OfSlots):
    y: Any = None


def test_what_was_set_after_the_constructor_stays() -> None:
    config = Noted(versioned("abc"))
    config.note = versioned(5)
    found = instantiate_config(config, None, {}, "/p")
    assert (found.x, found.length, found.note) == ("abc", 3, 5)
    slotted = AboveSlots(versioned(2))
    slotted.x = "kept"
    again = instantiate_config(slotted, None, {}, "/p")
    assert (again.x, again.y) == ("kept", 2)


@pytest.mark.parametrize(
    ("path", "prefix", "found"),
    [
        ("a/b", "/p", "mirror://a/b"), ("/p/a", "/p", "mirror://a"), ("/p/a", "/p/", "mirror://a"),
        ("mirror://x", None, "mirror://x"), ("gs://b/a", "gs://b", "mirror://a"),
        ("gs://other/a", "gs://b", "mirror://gs://other/a"), (Path("a"), None, "mirror://a"),
    ],
)  # fmt: skip
def test_the_mirror_of_a_path(path: Any, prefix: str | None, found: str) -> None:
    assert mirror_path(path, prefix) == found


def test_what_cannot_be_filled_in_is_named(fill: Callable[[Any], Any], make_step: MakeStep) -> None:
    endless: list[Any] = [this_output_path()]
    endless.append(endless)
    for config, error, words in (
        ([make_step("stranger")], NotFound, "the output path of step 'stranger' is not known; known steps: a$"),
        ([mirrored("/q/a")], InvalidRequest, "an absolute path has no mirror; write it relative to the prefix"),
        ([mirrored("/pp/a")], InvalidRequest, "an absolute path has no mirror"),
        ([mirrored(3)], InvalidRequest, "expected a path"),
        (endless, InvalidRequest, "a config of type list contains itself"),
    ):
        with pytest.raises(error, match=words):
            fill(config)
    with pytest.raises(NotFound, match="known steps: none"):
        instantiate_config([make_step("raw")], "/o", {}, "/p")
    with pytest.raises(InvalidRequest, match="this config is not a step's, so it has no output path"):
        instantiate_config([this_output_path()], None, {}, "/p")


def test_what_concerns_the_step_itself_is_filled_in_and_inputs_stay(step: ExecutorStep[Any]) -> None:
    config = {
        "o": this_output_path("x"), "v": versioned([versioned(1), this_output_path()]), "m": mirrored(versioned("d")),
        "i": step, "f": step / "f", "n": mirrored(step / "f", budget_gb=3), "p": [1],
    }  # fmt: skip
    found = resolve_local_placeholders(config, "/o")
    assert (found["o"], found["v"], found["m"]) == ("/o/x", [1, "/o"], "mirror://d")
    assert (found["i"], found["f"], found["n"]) == (step, step / "f", mirrored(step / "f", budget_gb=3))
    assert found["p"] is config["p"]
