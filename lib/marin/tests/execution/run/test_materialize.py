"""Making what a config refers to, outside of any experiment."""

import pytest

from marin.execution import materialize, output_path_of, this_output_path, versioned
from rigging.errors import InvalidRequest, StepFailed
from support.marin.steps import MakeStep, fail


def test_inputs_are_made_and_filled_in(make_step: MakeStep, prefix: str) -> None:
    ran: list[str] = []
    a = make_step("a", versioned(1), fn=lambda _: ran.append("a"))
    named = make_step("named", fn=lambda _: ran.append("named"))
    config = {"a": a / "f", "v": versioned(2), "named": output_path_of(named).nonblocking(), "out": this_output_path()}
    filled = materialize(config, prefix=prefix, output_path="/o")
    assert filled["a"].startswith(f"{prefix}/a-")
    assert filled["named"].startswith(f"{prefix}/named-")
    assert (filled["v"], filled["out"]) == (2, "/o")
    assert ran == ["a"]
    assert materialize(config, prefix=prefix, output_path="/o") == filled
    assert ran == ["a"]


def test_without_an_output_path_there_is_no_output(prefix: str) -> None:
    with pytest.raises(InvalidRequest, match="no output path"):
        materialize([this_output_path()], prefix=prefix)


def test_the_prefix_is_the_processes_own_by_default_and_a_failure_is_raised(
    make_step: MakeStep, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIN_PREFIX", prefix)
    assert materialize([versioned(1)]) == [1]
    with pytest.raises(StepFailed, match="ValueError: bad"):
        materialize([make_step("a", fn=fail)])
