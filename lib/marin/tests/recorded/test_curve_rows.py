"""Lines of metrics as curves."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from marin.recorded.reading import curve_rows
from marin.recorded.reading.curve_rows import CurveRows, Curves

_NAMES = ("loss", "a, b", 'say "x": ', "top1", "\x80\u00e9", "global_step")
_NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.sampled_from([None, True, 10**400, -0.0, "x", [1], {"step": 1}]),
)
_ROWS = st.builds(
    lambda step, rest: {**step, **rest},
    st.one_of(st.builds(lambda step: {"step": step}, st.integers(0, 20)), st.just({}), st.just({"step": 1.5})),
    st.dictionaries(st.sampled_from(_NAMES), _NUMBERS, max_size=3),
)
_LINES = st.lists(
    st.one_of(
        _ROWS.map(json.dumps),
        _ROWS.map(lambda row: json.dumps(row, separators=(",", ":"), ensure_ascii=False)),
        st.sampled_from(
            ["", "{", '{"step": 1, "lo', "[1]", '{"step": 01, "loss": 2}', '{"step": 1, "loss": 2-3}', "7"]
        ),
    )
)


def as_defined(lines: list[str]) -> dict[str, dict[int, float]]:
    """The curves of lines, a line at a time."""
    found: dict[str, dict[int, float]] = {}
    count = 0
    for line in lines:
        try:
            row: Any = json.loads(line)
        except ValueError:
            continue
        if not isinstance(row, dict):
            continue
        key = next((name for name in curve_rows.STEP_NAMES if name in row), None)
        step = row[key] if key and curve_rows.is_number(row[key]) else count
        count += 1
        for name, value in row.items():
            if name != key and curve_rows.is_number(value):
                found.setdefault(name, {})[int(step)] = value
    return found


def read(lines: list[str], end: str = "\n") -> Curves:
    rows = CurveRows()
    rows.add_lines(("\n".join(lines) + end).encode())
    return rows.curves()


@given(st.one_of(_LINES, st.builds(lambda line, count: [line] * count, _ROWS.map(json.dumps), st.integers(1, 9))))
def test_blocks_of_lines_have_the_curves_of_the_lines(lines: list[str]) -> None:
    for end in ("\n", ""):
        found = read(lines, end)
        assert {name: dict(zip(*points, strict=True)) for name, points in found.items()} == as_defined(lines)
        assert all(list(steps) == sorted(set(steps)) for steps, _ in found.values())


def test_long_files_of_equal_lines_are_read_as_columns_and_keep_the_last_value_of_a_step() -> None:
    lines = [json.dumps({"step": step, "loss": math.sin(step), "lr": 1e-4}) for step in range(5000)]
    again = [json.dumps({"step": step, "loss": 7, "lr": 1}) for step in range(4000, 4010)]
    found = read([*lines[:4500], *again, *lines[4500:]])
    values = dict(zip(*found["loss"], strict=True))
    assert (len(values), values[3999], values[4005], values[4999]) == (5000, math.sin(3999), 7, math.sin(4999))
