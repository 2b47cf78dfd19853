"""Values on the command line: what is taken, and what is refused with the reason."""

import math
from pathlib import Path
from typing import Any

import click
import pytest

from iris.cli.params import COUNT, DIRECTORY, LATER, LISTED, NAME, SECONDS, SECONDS_OR_ZERO, NumberRange
from rigging.text.quantities import MAX_COUNT, MAX_SECONDS


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SECONDS, "0.5", 0.5), (SECONDS, str(MAX_SECONDS), MAX_SECONDS), (SECONDS_OR_ZERO, "0", 0.0),
        (SECONDS_OR_ZERO, str(MAX_SECONDS), MAX_SECONDS), (COUNT, "1", 1), (COUNT, str(MAX_COUNT), MAX_COUNT),
        (LISTED, "1", 1), (LISTED, "10000", 10_000), (NAME, "ann", "ann"), (NAME, " a b ", " a b "),
        (NumberRange(min=-1, max=1), "-1", -1.0), (DIRECTORY, "/nowhere/at/all", Path("/nowhere/at/all")),
        (DIRECTORY, "/", Path("/")), (DIRECTORY, ".", Path()),
    ],
)  # fmt: skip
def test_what_is_taken(kind: click.ParamType, text: str, value: Any) -> None:
    found = kind.convert(text, None, None)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (SECONDS, "0", "not in the range"),
        (SECONDS, "-1", "not in the range"),
        (SECONDS, str(math.nextafter(MAX_SECONDS, math.inf)), "not in the range"),
        (SECONDS, "nan", "'nan' is not a number"),
        (SECONDS_OR_ZERO, "-0.1", "not in the range"),
        (SECONDS_OR_ZERO, "soon", "not a valid"),
        (COUNT, "0", "not in the range"),
        (COUNT, str(MAX_COUNT + 1), "not in the range"),
        (COUNT, "1.5", "not a valid integer"),
        (LISTED, "0", "not in the range"),
        (LISTED, "10001", "not in the range"),
        (NAME, "", "it is empty; give a name"),
        (NAME, " \t", "it is empty; give a name"),
        (DIRECTORY, "", "it is empty; give a path"),
        (DIRECTORY, "/etc/passwd", "is a file"),
        (LATER, "soon", "use e.g. 2026-05-03T14:00, or in how long: 90s, 10m, 2h, 3d."),
    ],
)
def test_what_is_refused(kind: click.ParamType, text: str, reason: str) -> None:
    with pytest.raises(click.BadParameter, match=reason):
        kind.convert(text, None, None)
