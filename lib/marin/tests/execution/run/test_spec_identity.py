import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.execution.step_runner import StepRunner
from marin.execution.step_spec import StepSpec
from rigging.errors import StepFailed


def write(path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., StepSpec]:
    def make(name: str, fn: Callable[[str], Any] = write, deps: tuple[StepSpec, ...] = ()) -> StepSpec:
        return StepSpec(name, output_path_prefix=str(tmp_path), fn=fn, deps=list(deps))

    return make


def test_the_order_of_deps_is_no_part_of_the_path_and_never_ignored(
    spec: Callable[..., StepSpec], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = spec("a"), spec("b")
    one, other = spec("diff", deps=(a, b)), spec("diff", deps=(b, a))
    assert one.output_path == other.output_path
    with pytest.raises(StepFailed, match="order of deps"):
        StepRunner().run([one, other])
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        StepRunner().run([one])
        assert caplog.text == ""
        StepRunner().run([other])
    assert "order of deps" in caplog.text


def lambdas_of_two_codes() -> list[Callable[[str], Any]]:
    return [lambda path: write(path), lambda path: write(path + "/x")]


def lambdas_of_two_values() -> list[Callable[[str], Any]]:
    return [lambda path, part=part: write(f"{path}/{part}") for part in ("x", "y")]


def inner_functions() -> list[Callable[[str], Any]]:
    def of(part: str) -> Callable[[str], Any]:
        def inner(path: str) -> None:
            write(f"{path}/{part}")

        return inner

    return [of("x"), of("y")]


@pytest.mark.parametrize("make", [lambdas_of_two_codes, lambdas_of_two_values, inner_functions])
def test_two_functions_of_one_name_are_refused_and_one_that_is_made_twice_is_not(
    make: Callable[[], list[Callable[[str], Any]]], spec: Callable[..., StepSpec]
) -> None:
    first, second = make()
    with pytest.raises(StepFailed, match="another step of this run has this output path"):
        StepRunner().run([spec("s", first), spec("s", second)])
    StepRunner().run([spec("again", make()[0]), spec("again", make()[0])])


def test_deps_may_be_given_by_a_generator() -> None:
    first = StepSpec("first", fn=lambda _: None)
    spec = StepSpec("second", deps=(dep for dep in [first]), fn=lambda _: None)  # type: ignore[arg-type]
    assert spec.deps == [first]
    assert spec.output_path == StepSpec("second", deps=[first]).output_path


def test_two_specs_at_one_place_by_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    one, other = (
        StepSpec("s", fn=write, hash_attrs={"n": number}, override_output_path=str(folder / "s"))
        for number, folder in enumerate([tmp_path, tmp_path / "link"])
    )
    with pytest.raises(StepFailed, match="another step of this run has this output path"):
        StepRunner().run([one, other])


def test_an_output_at_a_fixed_path_that_other_attributes_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 1, 2):
        assert "config.n" not in caplog.text
        StepRunner().run([StepSpec("s", fn=write, hash_attrs={"n": number}, override_output_path=str(tmp_path / "s"))])
    assert "config.n: 1 -> 2" in caplog.text
