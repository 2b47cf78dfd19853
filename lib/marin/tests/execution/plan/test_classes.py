"""Configs of different classes with equal values: one version, so never one output in silence."""

import json
import logging
import subprocess
import sys
from dataclasses import dataclass, make_dataclass
from enum import Enum, StrEnum
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, NamedTuple

import attrs
import pydantic
import pytest

from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.config.classes import classes_of
from marin.execution.script.explain import explain_steps
from rigging.errors import Conflict


@dataclass(frozen=True)
class Adam:
    lr: float = 0.1


@dataclass(frozen=True)
class Sgd:
    lr: float = 0.1


class AdamModel(pydantic.BaseModel):
    lr: float = 0.1


class SgdModel(pydantic.BaseModel):
    lr: float = 0.1


@attrs.frozen
class AdamAttrs:
    lr: float = 0.1


@attrs.frozen
class SgdAttrs:
    lr: float = 0.1


class AdamPlain:
    def __str__(self) -> str:
        return "optimizer"


class SgdPlain(AdamPlain):
    pass


class Kind(StrEnum):
    A = "a"


class AdamName(StrEnum):
    A = "a"


class SgdName(StrEnum):
    A = "a"


def choice(names: str) -> Any:
    """An enum whose members have the values 1 and 2 in the order in which they stand, as with `auto()`."""
    return Enum("Choice", names, module=__name__)


class AdamPair(NamedTuple):
    lr: float = 0.1


class SgdPair(NamedTuple):
    lr: float = 0.1


@dataclass(frozen=True)
class Train:
    optimizer: Any


def train(config: Train) -> None:
    """Do nothing."""


def executor(tmp_path: Path) -> Executor:
    return Executor(str(tmp_path), str(tmp_path / "experiments"))


def step(optimizer: Any) -> ExecutorStep[Any]:
    return ExecutorStep(name="train", fn=train, config=Train(optimizer))


CLASSES = [
    (versioned(Adam()), versioned(Sgd())),
    (Adam(versioned(0.1)), Sgd(versioned(0.1))),  # type: ignore[arg-type]
    (versioned([Adam()]), versioned([Sgd()])),
    (versioned({"a": Adam()}), versioned({"a": Sgd()})),
    (AdamModel(), SgdModel()),
    (AdamAttrs(), SgdAttrs()),
    (versioned(AdamPlain()), versioned(SgdPlain())),
    (versioned(AdamName.A), versioned(SgdName.A)),
    (versioned(choice("Adam Sgd").Adam), versioned(choice("Sgd Adam").Sgd)),
    (versioned(AdamPair()), versioned(SgdPair())),
]
KINDS = [
    (versioned(PurePosixPath("a")), versioned("a")),
    (versioned(Kind.A), versioned("a")),
    (versioned((1, 2)), versioned([1, 2])),
    (versioned(Adam()), versioned({"lr": 0.1})),
    (versioned(AdamPair()), versioned([0.1])),
    (versioned({1: "a"}), versioned({"1": "a"})),
]


@pytest.mark.parametrize(("first", "second"), CLASSES, ids=range(len(CLASSES)))
def test_two_classes_are_refused_in_one_run_and_told_beside_an_output(
    first: Any, second: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Conflict, match=r"different classes \(class of optimizer.*Adam[\w.]* -> .*Sgd"):
        executor(tmp_path).run([step(first), step(second)])
    assert not (tmp_path / "experiments").exists(), "nothing has run"
    executor(tmp_path).run([step(first), step(first)])
    caplog.clear()
    executor(tmp_path).run([step(second)])
    assert "class of optimizer" in caplog.text
    with pytest.raises(Conflict, match=r"class of optimizer.*Adam[\w.]* -> .*Sgd"):
        executor(tmp_path).run([step(second)], strict=True)
    (told,) = explain_steps(executor(tmp_path), [step(second)])
    assert "class of optimizer" in "\n".join(told.lines())
    executor(tmp_path).run([step(first)], strict=True)


@pytest.mark.parametrize(("first", "second"), KINDS, ids=range(len(KINDS)))
def test_one_value_written_in_two_ways_is_noted_and_not_refused(
    first: Any, second: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    executor(tmp_path).run([step(first), step(second)], strict=True)
    assert caplog.text.count("different spellings of values: optimizer") == 1
    caplog.clear()
    executor(tmp_path).run([step(second)], strict=True)
    assert caplog.text.count("different spellings of values: optimizer") == 1


def test_records_without_classes_are_noted_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    steps = [ExecutorStep(name=f"train{number}", fn=train, config=Train(versioned(Adam()))) for number in range(2)]
    for path in executor(tmp_path).run(steps).values():
        info = Path(path, ".executor_info")
        content = json.loads(info.read_text())
        del content["classes"]
        info.write_text(json.dumps(content, indent=2))
    caplog.clear()
    executor(tmp_path).run(steps, strict=True)
    assert caplog.text.count("recorded without the classes of their configs") == 1
    assert "2 output(s)" in caplog.text


def test_what_is_recorded() -> None:
    config = Train({"a": [Adam(), Kind.A, 1, "b"], "b": (PurePosixPath("c"),), "c": SimpleNamespace(), "d": len})
    here = __name__
    assert classes_of(config) == {
        "(config)": f"{here}.Train",
        "optimizer.a.[0]": f"{here}.Adam",
        "optimizer.a.[1]": f"{here}.Kind.A",
        "optimizer.b": "kind tuple",
        "optimizer.b.[0]": "kind pathlib.PurePosixPath",
        "optimizer.c": "types.SimpleNamespace",
    }


@pytest.mark.process
def test_a_class_of_the_script_that_runs_has_the_name_that_importing_it_gives(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    script = tmp_path / "exp" / "train.py"
    script.parent.mkdir()
    script.write_text(
        "from dataclasses import dataclass\nfrom marin.execution.config.classes import classes_of\n"
        "@dataclass\nclass A:\n    b: int = 1\n"
        "if __name__ == '__main__':\n    print(classes_of(A()))\n"
    )
    for words in (["exp/train.py"], ["-m", "exp.train"], ["-c", "import exp.train as t; print(t.classes_of(t.A()))"]):
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == "{'(config)': 'exp.train.A'}\n"


def test_a_class_that_came_by_value_from_another_script_is_not_recorded() -> None:
    """A job's `__main__` is not the script, so targets of a sweep would have another class in each of them."""
    sent = make_dataclass("Sent", ["b"])
    sent.__module__ = "__main__"
    assert classes_of(sent(b=(1,))) == {"b": "kind tuple"}
