"""What steps return, stored and loaded."""

import datetime
import enum
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from marin.execution.artifact import Artifact, ArtifactNotFound, PathMetadata, PathsMetadata
from rigging.errors import InvalidRequest


class Letter(enum.Enum):
    A = "a"


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


def test_a_dataclass_comes_back_equal(tmp_path: Path) -> None:
    inner = Inner(Path("/a"))
    result = Result(inner, [inner], {"k": inner}, inner, (2, "y"), frozenset({"n"}), datetime.date(2024, 1, 2))
    Artifact.save(result, str(tmp_path / "out"))
    assert Artifact.load(str(tmp_path / "out"), Result) == result
    raw = json.loads((tmp_path / "out" / ".artifact").read_text())
    assert raw["inner"] == Artifact.load(str(tmp_path / "out"))["inner"] == {"path": "/a", "letter": "a"}


@pytest.mark.parametrize("value", [None, 3, 1.5, "text", [1, {"a": None}], {"k": [True]}])
def test_plain_values(tmp_path: Path, value: Any) -> None:
    Artifact.save(value, str(tmp_path))
    assert Artifact.load(str(tmp_path)) == value
    assert (tmp_path / ".artifact").read_text() == json.dumps(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime.timedelta(days=2, microseconds=5), datetime.timedelta),
        (datetime.datetime(2024, 1, 2, 3, 4, 5), datetime.datetime),
        (datetime.time(3, 4), datetime.time),
        ({1: "a", 2: "b"}, dict[int, str]),
        ({0.5: [Letter.A]}, dict[float, list[Letter]]),
        ((1, 2, 3), tuple[int, ...]),
        ({1, 2}, set[int]),
    ],
)
def test_values_come_back_as_the_type_that_is_asked_for(tmp_path: Path, value: Any, kind: Any) -> None:
    Artifact.save(value, str(tmp_path))
    assert Artifact.load(str(tmp_path), kind) == value


def test_an_optional_value_is_the_first_alternative_that_fits(tmp_path: Path) -> None:
    Artifact.save({"path": "/a"}, str(tmp_path))
    assert Artifact.load(str(tmp_path), None | Inner | PathMetadata) == Inner(Path("/a"))
    Artifact.save(None, str(tmp_path))
    assert Artifact.load(str(tmp_path), Inner | None) is None
    Artifact.save({"other": 1}, str(tmp_path))
    with pytest.raises(InvalidRequest, match="no field 'other'"):
        Artifact.load(str(tmp_path), None | Inner)


def test_paths_and_generics(tmp_path: Path) -> None:
    Artifact.save(PathsMetadata("/p", ["/p/a"]), str(tmp_path))
    assert Artifact.load(str(tmp_path), PathsMetadata) == PathsMetadata("/p", ["/p/a"])
    Artifact.save([PathMetadata("/a"), PathMetadata("/b")], str(tmp_path))
    assert Artifact.load(str(tmp_path), list[PathMetadata]) == [PathMetadata("/a"), PathMetadata("/b")]


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


def test_what_has_no_form_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="a value of type object cannot be stored as JSON"):
        Artifact.save(object(), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_or_of_another_type_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFound, match=r"no artifact at .*nothing/\.artifact; the step that writes it"):
        Artifact.load(str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError):
        Artifact.load(str(tmp_path / "nothing"))
    Artifact.save({"path": "/a", "size": 3}, str(tmp_path))
    with pytest.raises(InvalidRequest, match="cannot be read as PathMetadata: PathMetadata has no field 'size'"):
        Artifact.load(str(tmp_path), PathMetadata)
    with pytest.raises(InvalidRequest, match="cannot be read as int"):
        Artifact.load(str(tmp_path), int)
