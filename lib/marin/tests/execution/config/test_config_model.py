from typing import Any

import pydantic
import pytest

from marin.execution import (
    ExecutorStep,
    collect_dependencies_and_version,
    instantiate_config,
    this_output_path,
    versioned,
)
from marin.execution.config_model import ConfigModel


class Part(ConfigModel):
    k: int = versioned(3)


class Config(ConfigModel):
    n: int
    output_path: str
    part: Part = Part()
    xs: list[int] = pydantic.Field(default=[5])

    @pydantic.field_validator("n", "xs")
    @classmethod
    def _check(cls, value: Any) -> Any:
        assert value not in ([], 0), "nothing to do"
        return value


class Child(Config):
    model_config = pydantic.ConfigDict(frozen=True)
    m: int = 1

    @pydantic.field_validator("n", "m")
    @classmethod
    def _check_size(cls, value: int) -> int:
        assert value < 1000, "too many"
        return value


@pytest.mark.parametrize("kind", [Config, Child])
def test_typed_fields_take_placeholders(kind: type[Config]) -> None:
    step = ExecutorStep(name="raw", fn=print, config=None)
    for path, received in [(this_output_path("d"), "/out/d"), (step / "x", "/raw/x"), ("here", "here")]:
        config = kind(n=versioned(200), output_path=path, xs=[versioned(1), 2])
        assert collect_dependencies_and_version(config).version["part.k"] == 3
        done = instantiate_config(config, "/out", {step: "/raw"}, "/prefix")
        assert done == kind(n=200, output_path=received, part=Part(k=3), xs=[1, 2])


def test_what_is_versioned_is_validated_like_the_value() -> None:
    given: Any = {"n": versioned("7"), "output_path": this_output_path(), "part": {"k": versioned("5")}}
    version = collect_dependencies_and_version(Child(**given)).version
    assert (version["n"], version["part.k"]) == (7, 5)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("n", "many", "valid integer"),
        ("n", 0, "nothing to do"),
        ("n", 5000, "too many"),
        ("m", 1.5, "valid integer"),
        ("xs", ["x"], "valid integer"),
    ],
)
def test_wrong_values_are_refused_versioned_or_not(field: str, value: Any, reason: str) -> None:
    for given in (value, versioned(value)):
        with pytest.raises(pydantic.ValidationError, match=reason):
            Child(**{"n": 1, "output_path": "", field: given})
