"""What is stored comes back, or is refused when it is stored."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from marin.execution.artifact import Artifact
from rigging.errors import InvalidRequest


class Point(NamedTuple):
    x: int
    where: Path


class Shape(Enum):
    FLAT = (1, 2)
    DEEP = (1, (2, 3))
    NAMED = "named"


@dataclass
class Result:
    mode: Literal["train", "eval"]
    point: Point


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Point(1, Path("a")), Point),
        ([Point(1, Path("a"))], list[Point]),
        ({True: 1, False: 2}, dict[bool, int]),
        (Shape.FLAT, Shape),
        ([Shape.DEEP, Shape.NAMED], list[Shape]),
        (Result("train", Point(2, Path("b"))), Result),
        (3, Literal[1, 3]),
        ({1: "a", 2: {"3": 4}}, dict[int, Any]),
    ],
    ids=str,
)
def test_it_comes_back(value: Any, kind: Any, tmp_path: Path) -> None:
    Artifact.save(value, str(tmp_path))
    assert Artifact.load(str(tmp_path), kind) == value


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {True: 1, "true": 2}, [{"deep": {None: 1, "null": 2}}]], ids=str)
def test_two_keys_of_one_text_are_refused_and_nothing_is_written(value: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="have the same JSON text"):
        Artifact.save(value, str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("stored", "kind"), [("test", Literal["train", "eval"]), (True, Literal[1]), (9, Shape)], ids=str
)
def test_what_is_none_of_the_allowed_values_is_refused_by_its_file(stored: Any, kind: Any, tmp_path: Path) -> None:
    Artifact.save(stored, str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"artifact .*/\.artifact cannot be read"):
        Artifact.load(str(tmp_path), kind)
