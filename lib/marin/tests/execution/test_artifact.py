"""What steps return: how it is stored, and as which type it comes back, kind by kind."""

import collections
import datetime
import enum
import json
import pathlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from marin.execution.artifact import (
    Artifact,
    ArtifactNotFound,
    DamagedArtifact,
    PathMetadata,
    PathsMetadata,
    artifact_bytes,
    artifact_path,
)
from marin.output_files import ARTIFACT_FILE
from rigging.errors import InvalidRequest, NotFound

T = TypeVar("T")


class Number(enum.IntEnum):
    NONE = 0


class Letter(enum.Enum):
    A = "a"


@dataclass
class Point:
    x: int
    y: float = 0.5
    derived: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.derived = self.x * 2


class Late:
    pass


@dataclass
class Needs:
    a: int
    b: int


@dataclass(frozen=True)
class Inner:
    path: Path
    letter: Letter = Letter.A


@dataclass(frozen=True)
class Result:
    inner: Inner
    many: list[Inner] = field(default_factory=list)
    by_name: dict[str, Inner] = field(default_factory=dict)
    maybe: Inner | None = None
    pair: tuple[int, str] = (1, "x")
    names: frozenset[str] = frozenset()
    when: datetime.date | None = None


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None), (True, True), ("t", "t"), (Letter.A, "a"), (Path("/a"), "/a"),
        (PathMetadata("/a"), {"path": "/a"}),
        (Point(1), {"x": 1, "y": 0.5, "derived": 2}), (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.datetime(2024, 1, 2, 3), "2024-01-02T03:00:00"), (datetime.time(3), "03:00:00"),
        (datetime.timedelta(minutes=1), 60.0), (1.5, 1.5), ([1, {"a": None}], [1, {"a": None}]),
        (collections.UserDict(a=1), {"a": 1}), ({"b", "a"}, ["a", "b"]),
        (frozenset({2, 1}), [1, 2]), (np.int64(3), 3), (np.array(4), 4), ((1, 2), [1, 2]), ([Letter.A], ["a"]),
    ],
)  # fmt: skip
def test_what_is_stored(value: Any, stored: Any) -> None:
    assert json.loads(artifact_bytes(value)) == stored


def test_what_is_saved_is_loaded_as_it_is_stored_and_as_its_type(tmp_path: Path) -> None:
    inner = Inner(Path("/a"))
    result = Result(inner, [inner], {"k": inner}, inner, (2, "y"), frozenset({"n"}), datetime.date(2024, 1, 2))
    Artifact.save(result, str(tmp_path / "out"))
    assert Artifact.load(str(tmp_path / "out"), Result) == result
    raw = json.loads((tmp_path / "out" / ".artifact").read_text())
    assert raw["inner"] == Artifact.load(str(tmp_path / "out"))["inner"] == {"path": "/a", "letter": "a"}


class Model:
    """Has what a pydantic model has."""

    def __init__(self, n: int) -> None:
        self.n = n

    def model_dump(self, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"n": self.n}

    @classmethod
    def model_validate(cls, raw: dict[str, Any]) -> "Model":
        return cls(**raw)


def test_a_model_is_its_fields(tmp_path: Path) -> None:
    Artifact.save({"model": Model(3)}, str(tmp_path))
    assert Artifact.load(str(tmp_path)) == {"model": {"n": 3}}
    Artifact.save(Model(4), str(tmp_path))
    assert Artifact.load(str(tmp_path), Model).n == 4


@pytest.mark.parametrize("value", [object(), [object()], Point, {1, "a"}, np.zeros(2), {(1, 2): 3}, lambda: None])
def test_what_has_no_json_form_is_refused_and_writes_nothing(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=rf"a value of type {type(value).__name__} cannot be stored as JSON"):
        Artifact.save(value, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_holds_itself() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidRequest, match="a value of type list cannot be stored"):
        artifact_bytes(endless)


def loaded(tmp_path: Path, raw: Any, kind: Any) -> Any:
    (tmp_path / ARTIFACT_FILE).write_text(json.dumps(raw))
    return Artifact.load(str(tmp_path), kind)


@pytest.mark.parametrize(
    ("raw", "kind", "value"),
    [
        (1, int, 1), (1, float, 1), (1.5, float, 1.5), ("t", str, "t"), (True, bool, True), ([1], list, [1]),
        ({"a": 1}, dict, {"a": 1}), (None, type(None), None), ("/a", Path, Path("/a")),
        ("/a", pathlib.PurePosixPath, pathlib.PurePosixPath("/a")), ("a", Letter, Letter.A),
        ("2024-01-02", datetime.date, datetime.date(2024, 1, 2)),
        (60, datetime.timedelta, datetime.timedelta(minutes=1)),
        ([1, 2], tuple, (1, 2)), ([1, 2], set, {1, 2}), ([1], frozenset, frozenset({1})),
        ([1, "a"], tuple[int, str], (1, "a")), ([1, 2, 3], tuple[int, ...], (1, 2, 3)),
        (["a"], list[Letter], [Letter.A]),
        (["a"], set[Letter], {Letter.A}), (["a"], frozenset[Letter], frozenset({Letter.A})),
        ({"1": "a"}, dict[int, Letter], {1: Letter.A}), ({"0.5": 1}, dict[float, int], {0.5: 1}),
        ({"k": [1]}, Mapping[str, tuple[int, ...]], {"k": (1,)}), (["a"], collections.abc.Sequence[Letter], [Letter.A]),
        ("text", collections.abc.Sequence[str], "text"), (5, Any, 5), (5, T, 5), (5, Late, 5), (None, int | None, None),
        ("a", int | Letter, Letter.A), ({"x": 1}, Point, Point(1)), ({"x": 1, "derived": 99}, Point, Point(1)),
        ({"parent_path": "/p"}, PathsMetadata, PathsMetadata("/p", [])),
        ([{"path": "/a"}], list[PathMetadata], [PathMetadata("/a")]),
        ({"0.5": ["a"]}, dict[float, list[Letter]], {0.5: [Letter.A]}),
        ("2024-01-02T03:04:05", datetime.datetime, datetime.datetime(2024, 1, 2, 3, 4, 5)),
        ("03:04:00", datetime.time, datetime.time(3, 4)),
        ({"path": "/a"}, None | Inner | Point, Inner(Path("/a"))), ({"0": 5}, dict[Number, int], {Number.NONE: 5}),
    ],
)  # fmt: skip
def test_a_value_comes_back_as_the_type_that_is_asked_for(tmp_path: Path, raw: Any, kind: Any, value: Any) -> None:
    found = loaded(tmp_path, raw, kind)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        ("1", int, "int: expected int, not '1'"), (1, str, "str: expected str, not 1"),
        ("x", float, "expected float, not 'x'"), ([1], dict, r"expected dict, not \[1\]"),
        (5, type(None), "expected NoneType, not 5"), ("b", Letter, "'b' is not a valid Letter"),
        ([1], tuple[int, str], "zip"),
        ([1, 2], Point, r"expected the fields of Point, not \[1, 2\]"),
        ({"x": 1, "z": 2}, Point, "Point has no field 'z'; it has x, y, derived"),
        ({"a": 1}, Needs, "missing 1 required positional argument: 'b'"),
        ({"x": "one"}, Point, "expected int, not 'one'"),
        ("t", int | float, r"expected int, not 't'; expected float, not 't'"),
        (5, Letter | None, "5 is not a valid Letter"),
        ({"k": 1}, dict[int, int], "invalid literal for int"), ({"other": 1}, None | Inner, "no field 'other'"),
        ({"path": "/a"}, None | Inner | PathMetadata, "it fits Inner and PathMetadata; load it as one"),
        ({"2": 5}, dict[Number, int], "'2' is not a valid Number"),
    ],
)  # fmt: skip
def test_what_is_of_another_type_says_so(tmp_path: Path, raw: Any, kind: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"artifact .*/\.artifact cannot be read as .*{words}"):
        loaded(tmp_path, raw, kind)


def test_a_file_that_is_no_json_and_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / ARTIFACT_FILE).write_text("{")
    with pytest.raises(InvalidRequest, match="cannot be read as JSON"):
        Artifact.load(str(tmp_path))
    with pytest.raises(ArtifactNotFound) as missing:
        Artifact.load(str(tmp_path / "no"))
    assert isinstance(missing.value, NotFound)
    assert isinstance(missing.value, FileNotFoundError)
    assert str(missing.value).startswith(f"no artifact at {tmp_path}/no/.artifact; ")
    assert artifact_path("gs://b/x") == "gs://b/x/.artifact"


@pytest.mark.parametrize("content", [b'{"loss": 9}', b'{"lo', b""], ids=["one letter", "cut off", "empty"])
def test_a_value_that_was_changed_or_cut_off_is_refused_with_its_file(tmp_path: Path, content: bytes) -> None:
    Artifact.save({"loss": 1}, str(tmp_path))
    assert subprocess.run(["sha256sum", "-c", f"{ARTIFACT_FILE}.sha256"], cwd=tmp_path, check=False).returncode == 0
    (tmp_path / ARTIFACT_FILE).write_bytes(content)
    with pytest.raises(DamagedArtifact, match=rf"artifact {tmp_path}/\.artifact is damaged"):
        Artifact.load(str(tmp_path))
    Artifact.save(None, str(tmp_path))
    assert Artifact.load(str(tmp_path)) is None
