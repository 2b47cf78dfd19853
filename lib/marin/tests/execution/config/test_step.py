import pickle

import pytest

from marin.execution import (
    THIS_OUTPUT_PATH,
    ExecutorStep,
    InputName,
    MirroredValue,
    OutputName,
    VersionedValue,
    ensure_versioned,
    get_executor_step,
    mirrored,
    output_path_of,
    this_output_path,
    unwrap_versioned_value,
    versioned,
)
from support.marin.steps import MakeStep


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../x", "'..' part"), ("a/../b", "'..' part"), ("./a", "'.' or"), ("/etc/x", "absolute"),
        ("gs://bucket/x", "URL"), ("a//b", "empty part"), ("a/", "empty part"), ("", "non-empty"),
        ("a\nb", "control character"), ("a\x00", "control character"), ("a\x7f", "control character"),
    ],
)  # fmt: skip
def test_names_that_leave_the_prefix_are_refused(make_step: MakeStep, name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make_step(name)
    if name and not name.startswith(("/", "gs:")) and name != "a/":
        with pytest.raises(ValueError, match=reason):
            make_step("fine", override_output_path=name)


@pytest.mark.parametrize("name", ["a", "tokenized/fineweb", "a.b/c-d_e", "..a/b..", "with space", "é"])
def test_other_names_are_fine(make_step: MakeStep, name: str) -> None:
    assert make_step(name).name == name


def test_steps_are_the_same_only_when_they_are_one_object(make_step: MakeStep) -> None:
    one, other = make_step("n", 1), make_step("n", 1)
    assert one != other
    assert len({one, other, one}) == 2
    assert ExecutorStep[int](name="n", fn=None, config=3).config == 3


def test_the_repr_of_a_step_does_not_unroll_its_dependencies(make_step: MakeStep) -> None:
    step = make_step("s0")
    for index in range(1, 60):
        step = make_step(f"s{index}", [step, step])
    assert repr(step) == "ExecutorStep(name='s59')"


def test_paths_below_an_output(make_step: MakeStep) -> None:
    step = make_step("n")
    assert step.as_input_name() == InputName(step, None)
    assert step / "a" / "b" == step.cd("a").cd("b") == output_path_of(step, "a/b") == InputName(step, "a/b")
    assert output_path_of(step / "a") == step / "a"
    assert output_path_of(step / "a", "b") == step / "a" / "b"


def test_going_below_a_nonblocking_input_makes_it_blocking_again(make_step: MakeStep) -> None:
    reference = output_path_of(make_step("n"), "a").nonblocking()
    assert not reference.block_on_step
    assert (reference / "b").block_on_step
    assert reference.cd("b").block_on_step


def test_the_step_of_an_input(make_step: MakeStep) -> None:
    step = make_step("n")
    assert get_executor_step(step) is get_executor_step(step / "a") is step
    for wrong in (InputName.hardcoded("a"), "a"):
        with pytest.raises(ValueError, match="refers to no step"):
            get_executor_step(wrong)  # type: ignore[arg-type]


def test_wrapped_values() -> None:
    assert this_output_path() == THIS_OUTPUT_PATH == OutputName(None)
    assert this_output_path("a") == OutputName("a")
    assert versioned(3) == ensure_versioned(3) == ensure_versioned(versioned(3)) == VersionedValue(3)
    assert unwrap_versioned_value(versioned(3)) == unwrap_versioned_value(3) == 3
    with pytest.raises(ValueError, match="already versioned"):
        versioned(versioned(3))
    assert mirrored("a") == MirroredValue("a", 10)
    assert mirrored("a", 50) == mirrored("a", budget_gb=50) == MirroredValue("a", 50)
    for budget in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"mirrored\\('a'\\): budget_gb={budget}: must be 0 or more, and finite"):
            mirrored("a", budget)


def test_an_output_path_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"output_path_of\('raw/x'\): neither an ExecutorStep .*hardcoded\(path\)"):
        output_path_of("raw/x")  # type: ignore[arg-type]


def test_with_output_path(make_step: MakeStep) -> None:
    step = make_step("n", 1, description="d")
    moved = step.with_output_path("else/where")
    assert (moved.override_output_path, moved.name, moved.config, moved.description) == (
        "else/where", "n", step.config, "d",
    )  # fmt: skip


def test_references_can_be_pickled(make_step: MakeStep) -> None:
    reference = InputName.hardcoded("a").nonblocking()
    assert pickle.loads(pickle.dumps(reference)) == reference
    assert pickle.loads(pickle.dumps(versioned(mirrored("a")))) == VersionedValue(MirroredValue("a"))
