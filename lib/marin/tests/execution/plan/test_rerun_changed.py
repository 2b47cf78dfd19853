"""Steps of changed code that run beside their old outputs."""

import sys
from pathlib import Path
from typing import Any

import pytest

from marin.execution import ExecutorStep, mirrored, output_path_of, this_output_path, versioned
from marin.execution.report.events import StepEnd
from marin.execution.script.explain import explain_steps
from marin.execution.step_spec import StepSpec
from rigging.errors import Conflict, InvalidRequest
from support.marin.steps import MakeExecutor

FACTOR = 2


def write(config: dict[str, Any]) -> None:
    Path(config["path"], "n").write_text(str(FACTOR))


def copy(config: dict[str, Any]) -> None:
    Path(config["path"], "n").write_text(config["input"])


def step(name: str, fn: Any, source: Any = None, **options: Any) -> ExecutorStep[Any]:
    return ExecutorStep(name, fn, {"input": source, "path": this_output_path(), "k": versioned(1)}, **options)


def ran(executor: Any) -> set[str]:
    return {result.task.output_path for result in executor.results if result.end is StepEnd.SUCCEEDED}


def change(monkeypatch: pytest.MonkeyPatch, value: int) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", value)


def test_changed_steps_and_their_dependants_run_beside_the_old_outputs(
    make_executor: MakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = step("first", write)
    twin = step("first", write)
    pinned = step("pinned", copy, first / "n", override_output_path="published/n/")
    far = step("far", copy, mirrored(output_path_of(pinned, "n")))
    named = step("named", copy, (first / "n").nonblocking())
    steps = [twin, far, named, step("other", copy, "x")]
    old = make_executor().run(steps)
    change(monkeypatch, 3)
    moved = {old[step].rstrip("/") + "@fix" for step in (first, pinned, far)}

    executor = make_executor()
    assert {each.path for each in explain_steps(executor, steps, rerun_changed="fix") if each.action == "run"} == moved
    paths = executor.run(steps, rerun_changed="fix")
    assert ran(executor) == moved
    assert paths[twin] == paths[first] == f"{old[first]}@fix"
    assert Path(old[first], "n").read_text() == "2"
    assert Path(paths[first], "n").read_text() == "3"
    assert Path(paths[pinned], "n").read_text() == f"{old[first]}@fix/n"
    assert Path(paths[far], "n").read_text() == "mirror://published/n@fix/n"
    assert executor.configs[named]["input"] == f"{old[first]}/n"

    for options in ({"rerun_changed": "fix"}, {"rerun_changed": "fix", "strict": True}):
        assert executor.run(steps, **options) == paths
        assert not ran(executor), "the outputs are found"
    assert executor.run(steps) == old, "without the option, each step has its own path"
    assert executor.configs[pinned]["input"] == f"{old[first]}/n"

    change(monkeypatch, 4)
    with pytest.raises(Conflict, match=r"strict: 1 output(.|\n)*first-\w+@fix: FACTOR: 3 -> 4\n.*--rerun-changed=TAG"):
        make_executor().run(steps, rerun_changed="fix", strict=True)
    executor.run(steps, rerun_changed="fix", force=["first"])
    assert ran(executor) == {paths[first]}
    assert Path(paths[first], "n").read_text() == "4"


def test_what_ran_beside_an_output_is_found_when_that_one_is_deleted(
    make_executor: MakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [step("first", write)]
    [old] = make_executor().run(steps).values()
    change(monkeypatch, 3)
    make_executor().run(steps, rerun_changed="fix")
    Path(old, ".executor_status").unlink()
    executor = make_executor()
    assert [*executor.run(steps, rerun_changed="fix").values()] == [f"{old}@fix"]
    assert not ran(executor)


def test_values_alone_are_no_changed_code(make_executor: MakeExecutor) -> None:
    make_executor().run([step("a", copy, "1")])
    executor = make_executor()
    [path] = executor.run([step("a", copy, "2")], rerun_changed="fix").values()
    assert not ran(executor)
    assert "@" not in path


@pytest.mark.parametrize("tag", ["", "a/b", "..", "v1.forced", "a b", "ä"])
def test_a_tag_is_a_part_of_a_name(tag: str, make_executor: MakeExecutor) -> None:
    with pytest.raises(InvalidRequest, match=r"rerun_changed=.*: use only letters, digits, '-' and '_'"):
        make_executor().run([], rerun_changed=tag)


def test_steps_that_cannot_move_are_refused(make_executor: MakeExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    def spec(prefix: str) -> ExecutorStep[Any]:
        return StepSpec("spec", output_path_prefix=prefix, fn=lambda _: FACTOR).as_executor_step()

    executor = make_executor()
    first = step("first", write)
    taken = step("taken", copy, "x", override_output_path=executor.run([first])[first] + "@fix")
    executor.run([spec(executor.prefix)])
    change(monkeypatch, 3)
    with pytest.raises(InvalidRequest, match=r"step 'spec' was made from a StepSpec, .* --force spec"):
        make_executor().run([spec(executor.prefix)], rerun_changed="fix")
    with pytest.raises(Conflict, match=r"step 'taken' already has the output path .*@fix; choose another tag"):
        make_executor().run([first, taken], rerun_changed="fix")
    with pytest.raises(InvalidRequest, match="dry_run reads no storage"):
        make_executor().run([first], rerun_changed="fix", dry_run=True)
