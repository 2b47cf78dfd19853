import dataclasses
import datetime
import decimal
import enum
import fractions
import itertools
import json
import pathlib
import re
import runpy
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.execution import ExecutorStep, InputName, mirrored
from marin.execution.config.encode import UnstableValue, encode, field_path, reference_order
from marin.execution.config.placeholder import OMIT_DEFAULT_METADATA
from marin.execution.version import canonical
from marin.execution.version.canonical import canonical_text
from marin.execution.version.rope import FLAT_BYTES, Rope, rope

LONG = b"x" * (FLAT_BYTES + 1)
RAW = ExecutorStep(name="raw", fn=None, config=None)


class Colour(enum.Enum):
    RED = "red"
    NONE = None


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Text(str):
    def __str__(self) -> str:
        return "something else"


@dataclasses.dataclass
class Grown:
    old: Any = 1
    new: Any = dataclasses.field(default=5, metadata={OMIT_DEFAULT_METADATA: True})
    made: Any = dataclasses.field(default_factory=list, metadata={OMIT_DEFAULT_METADATA: True})
    unset: Any = dataclasses.field(init=False)


def encoded(value: Any) -> Any:
    return encode(value, "f", lambda reference: f"<{reference.step.name if reference.step else reference.name}>")


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, None), (True, True), (1, 1), (0.5, 0.5), ("a", "a"), (Text("a"), "a"), (Colour.RED, "red"),
        (Colour.NONE, None), (Level.LOW, 1), (Word.YES, "yes"), ([1, (2, [3])], [1, [2, [3]]]), ({}, {}),
        ({"a": Colour.RED}, {"a": "red"}), ({1: 2, 0.5: 3}, {1: 2, 0.5: 3}), ({None: 1}, {None: 1}),
        ({Level.LOW: 1}, {1: 1}), ({Word.YES: 1}, {"yes": 1}), (RAW, "<raw>"), (RAW / "x", "<raw>"),
        (InputName(None, "/p"), "</p>"), (pathlib.PurePosixPath("/a"), "/a"),
        (datetime.timedelta(1, 2, 3), {"days": 1, "seconds": 2, "microseconds": 3}),
        (mirrored("m", budget_gb=77), {"value": "m", "budget_gb": 10}), (Grown(), {"old": 1}),
        (Grown(2, 6, [1]), {"old": 2, "new": 6, "made": [1]}), (Grown(new=RAW), {"old": 1, "new": "<raw>"}),
        (b"x", "b'x'"), (bytearray(b"x"), "bytearray(b'x')"), (range(3), "range(0, 3)"),
        (slice(1), "slice(None, 1, None)"), (1 + 2j, "(1+2j)"),
        (datetime.date(2024, 1, 2), "2024-01-02"), (decimal.Decimal("1.50"), "1.50"),
        (fractions.Fraction(1, 3), "1/3"), (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (re.compile("0x7f0000000000"), "re.compile('0x7f0000000000')"), (np.float64(0.5), 0.5), (np.int64(3), "3"),
        (np.float32(0.5), "0.5"), (np.dtype("int8"), "int8"), (int, "<class 'int'>"), (set(), "set()"),
        ({1}, "{1}"), (frozenset({1}), "frozenset({1})"), ({"a"}, "{'a'}"), ({RAW}, "{'<raw>'}"),
        (frozenset({RAW, "b", "a"}), "frozenset({'<raw>', 'a', 'b'})"), ({2, 1, 3.5}, "{1, 2, 3.5}"),
    ],
)  # fmt: skip
def test_values(value: Any, form: Any) -> None:
    found = encoded(value)
    assert found == form
    assert type(found) is type(form)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a", "b"}, r"^field 'f': the order of the set \{.*\} depends on the process's hash seed; use a sorted list"),
        ({(1, "a"), (2, "b")}, "hash seed"),
        ({Colour.RED, 1}, "hash seed"),
        (np.zeros(2), "an array of type ndarray cannot be versioned"),
        (lambda: None, "shows a memory address"),
        ({object()}, "shows a memory address"),
        ({Colour.RED: 1}, r"dict key <Colour.RED: 'red'> is not a JSON key; use <Colour.RED: 'red'>.value"),
        ({(1, 2): 1}, r"dict key \(1, 2\) of type tuple has no JSON form"),
        ({1: 1, "a": 2}, "the dict mixes keys of type number and str"),
        ({None: 1, "a": 2}, "the dict mixes keys of type None and str"),
        ({RAW, ExecutorStep(name="raw", fn=None, config=1)}, "the set holds two inputs called 'raw'"),
    ],
)
def test_values_without_a_stable_form(value: Any, words: str) -> None:
    with pytest.raises(UnstableValue, match=words):
        encoded(value)


@pytest.mark.parametrize(
    "value", [{1, 2}, {(1, 2), (3, (4, 5))}, {np.int64(1), 2}, {Level.LOW, 2}, {frozenset({1}), 1}]
)
def test_sets_that_have_one_order_in_every_process(value: Any) -> None:
    assert encoded(value) == str(value)


def test_long_values_are_shown_shortly() -> None:
    with pytest.raises(UnstableValue) as refused:
        encoded({"x" * 300, "y"})
    assert "..." in str(refused.value)
    assert len(str(refused.value)) < 400
    short = {"x" * 90, "y" * 90}
    with pytest.raises(UnstableValue) as refused:
        encoded(short)
    assert repr(short) in str(refused.value)


def test_paths_of_fields_and_the_order_of_inputs() -> None:
    assert (field_path("", "a"), field_path("a", "b"), field_path("a", "[0]")) == ("a", "a.b", "a.[0]")
    orders = [
        reference_order(item)
        for item in (InputName(None, None), RAW / "x", RAW.as_input_name(), RAW.as_input_name().nonblocking())
    ]
    assert orders == ["\0\0True", "raw\0x\0True", "raw\0\0True", "raw\0\0False"]


def test_the_inputs_of_a_value_are_asked_for_in_order() -> None:
    steps = [ExecutorStep(name=name, fn=None, config=None) for name in "cab"]
    seen: list[str] = []

    def refer(reference: InputName) -> str:
        assert reference.step is not None
        seen.append(reference.step.name)
        return "x"

    encode([steps[0], {"k": steps[1] / "y"}, {steps[2], steps[0]}], "f", refer)
    assert seen == ["c", "a", "b", "c"]


@settings(max_examples=50, deadline=None)
@given(value=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    | st.dictionaries(st.integers(), inner, max_size=3), max_leaves=6,
))  # fmt: skip
def test_canonical_texts_are_those_of_json(value: Any) -> None:
    assert canonical_text(value) == json.dumps(value, sort_keys=True)


def test_what_has_no_json_form_is_an_error_and_not_left_out() -> None:
    with pytest.raises(TypeError, match="Object of type object is not JSON serializable"):
        canonical_text([object()])
    with pytest.raises(TypeError):
        canonical_text({(1, 2): 3})


@pytest.mark.parametrize("count", range(4))
def test_a_rope_has_the_bytes_of_its_pieces(count: int) -> None:
    for pieces in itertools.product([b"", b"ab", LONG], repeat=count):
        whole = b"".join(pieces)
        inner = rope(list(pieces))
        outer = rope([b"<", inner, inner, b">"])
        for found, content in ((inner, whole), (outer, b"<" + whole + whole + b">")):
            assert bytes(found) == b"".join(found.chunks()) == content
            assert found.length == len(content)
            assert found.is_flat is (len(content) <= FLAT_BYTES or (found is inner and count == 1))


def test_a_text_is_flat_as_long_as_it_is_short() -> None:
    half = b"x" * (FLAT_BYTES // 2)
    assert rope([half, half]).is_flat
    assert not rope([half, half, b"y"]).is_flat
    assert rope([b"x" * (FLAT_BYTES + 1)]).is_flat, "it is in one piece anyway"
    assert not rope([rope([half, half, b"y"])]).is_flat
    assert bytes(Rope((rope([b"a"]),), 1)) == b"a"
    assert list(rope([half, half, b"y"]).chunks()) == [half, half, b"y"]


def test_texts_of_hashes_are_the_same_without_the_fast_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"b": [1, 2.5, None, True, float("inf")], "a": {"\u00fc": "\n"}}
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    slow = runpy.run_path(str(canonical.__file__))["canonical_text"]
    assert slow(value) == canonical_text(value) == json.dumps(value, sort_keys=True)
