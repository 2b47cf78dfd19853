from typing import Any

import pytest

from marin.execution import ExecutorStep
from marin.execution.plan.selection import NoSuchStep, check_patterns, check_steps, matching_steps, select_steps
from rigging.errors import InvalidRequest
from support.marin.steps import MakeExecutor, MakeStep


def named(*names: str) -> list[ExecutorStep[Any]]:
    return [ExecutorStep(name=name, fn=None, config=None) for name in names]


STEPS = named("raw/a", "raw/b", "train", "Eval")


def test_steps_are_a_list_of_steps() -> None:
    assert check_steps(iter(STEPS)) == STEPS
    with pytest.raises(InvalidRequest, match=r"is one step, not a list of them; write steps=\[step\]"):
        check_steps(STEPS[0])
    with pytest.raises(InvalidRequest, match=r"'x' is a str, not an ExecutorStep"):
        check_steps([STEPS[0], "x"])


def test_steps_that_match_any_pattern_in_their_order() -> None:
    assert matching_steps(STEPS, ["^train$", "a"], "--step") == STEPS
    assert matching_steps(STEPS, ["b$"], "--step") == [STEPS[1]]
    words = r"--step='a' is one text, not a list of regular expressions; write \['a'\]"
    with pytest.raises(InvalidRequest, match=words):
        matching_steps(STEPS, "a", "--step")
    with pytest.raises(InvalidRequest, match=r"run_only: '\[' is not a regular expression: "):
        check_patterns(["a", "["], "run_only")


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("eval", "; did you mean Eval?"), ("^trian$", "; did you mean train?"),
        ("RAW", "; did you mean raw/a or raw/b?"), ("zzz", ";"),
    ],
)  # fmt: skip
def test_a_pattern_that_matches_nothing_is_told_with_the_nearest(pattern: str, hint: str) -> None:
    with pytest.raises(NoSuchStep) as refused:
        matching_steps(STEPS, [pattern], "--step")
    text = str(refused.value)
    assert text.startswith(f"--step={[pattern]}: no step has such a name{hint}")
    assert text.endswith("steps are: Eval, raw/a, raw/b, train")


@pytest.mark.parametrize(("count", "rest"), [(0, "none"), (30, "s29"), (31, " and 1 more")])
def test_of_many_names_some_are_shown(count: int, rest: str) -> None:
    with pytest.raises(NoSuchStep) as refused:
        matching_steps(named(*(f"s{number:02}" for number in range(count))), ["zzz"], "--step")
    assert str(refused.value).endswith(rest)


def test_what_a_chosen_step_needs_comes_before_it(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    a, other = make_step("a"), make_step("other")
    b = make_step("b", a)
    c = make_step("c", b)
    executor = make_executor()
    for step in (c, other):
        executor.compute_version(step)
    for steps, patterns, chosen in (
        ([c, other], None, [a, b, c, other]),
        ([b], None, [a, b]),
        ([c, other], ["^b$"], [a, b]),
        ([c, other], ["^a$", "other"], [a, other]),
    ):
        assert select_steps(executor.plan, steps, patterns) == chosen
    with pytest.raises(NoSuchStep):
        select_steps(executor.plan, [b], ["other"])
