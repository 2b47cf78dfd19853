import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from marin.execution import Executor, ExecutorMainConfig, ExecutorStep, executor_main, versioned
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_RUNNING
from marin.execution.script.explain import EarlierOutputs, Explanation, PlannedAction, explain_steps, explanation_lines
from marin.execution.version.differences import WHAT_TO_TYPE, Difference
from rigging.errors import InvalidRequest, StepFailed
from support.marin.steps import MakeExecutor, MakeStep, fail

Explain = Callable[..., dict[str, Explanation]]


@pytest.fixture
def explain(make_executor: MakeExecutor) -> Explain:
    def explain(*steps: ExecutorStep[Any], **options: Any) -> dict[str, Explanation]:
        return {found.name: found for found in explain_steps(make_executor(), steps, **options)}

    return explain


def test_what_differs_from_the_nearest(make_step: MakeStep, make_executor: MakeExecutor, explain: Explain) -> None:
    def experiment(n: int, lr: float) -> ExecutorStep[Any]:
        data = make_step("raw/data", {"n": versioned(n), "seed": versioned(0)})
        return make_step("train", data / "x", {"optimizer": {"lr": versioned(lr)}})

    make_executor().run([experiment(100, 0.1), experiment(100, 0.2)])
    near = make_executor().run([experiment(200, 0.2)])
    found = explain(experiment(200, 0.3))
    assert found["raw/data"].action is found["raw/data"].fate is PlannedAction.CACHED
    assert found["train"].action is PlannedAction.RUN
    assert found["train"].nearest in near.values()
    assert found["train"].differences == [Difference("y.optimizer.lr", "0.2", "0.3")]
    found = explain(experiment(300, 0.2))
    assert found["raw/data"].differences[0].where == "x.n"
    assert [str(difference) for difference in found["train"].differences] == ["dependency raw/data: x.n: 100 -> 300"]
    assert "            x.n: 100 -> 300" in explanation_lines(list(found.values()))


def test_statuses_other_than_success(make_step: MakeStep, make_executor: MakeExecutor, explain: Explain) -> None:
    bad = make_step("bad", versioned(1), fn=fail)
    after = make_step("after", bad)
    with pytest.raises(StepFailed):
        make_executor().run([after])
    found = explain(after)["bad"]
    assert (found.action, found.reason) == (PlannedAction.RUN, "it failed in an earlier run")
    assert explain(after)["after"].reason.endswith("because a dependency failed")
    assert explain(bad, force_run_failed=False)["bad"].action is PlannedAction.FAIL

    Path(found.path, ".executor_status").unlink()
    found = explain(bad)["bad"]
    assert (found.reason, found.nearest) == ("no output of this name exists yet", None), "its own path is none"

    step = make_step("n")
    path = explain(step)["n"].path
    StatusFile(path).write_status(STATUS_RUNNING)
    assert explain(step)["n"].reason == "a run that was making its output ended without finishing it"
    holder = StatusFile(path, "another-machine")
    assert holder.try_acquire_lock()
    assert explain(step)["n"].action is PlannedAction.WAIT


def test_a_pinned_path_of_another_version(make_step: MakeStep, make_executor: MakeExecutor, explain: Explain) -> None:
    make_executor().run([make_step("n", versioned(1), override_output_path="pinned")])
    [found] = explain(make_step("n", versioned(2), override_output_path="pinned")).values()
    assert found.action is PlannedAction.CACHED
    assert found.reason == "the output at its pinned path exists, but another version made it"
    assert found.differences == [Difference("x", "1", "2")]


def test_only_some_steps(make_step: MakeStep, explain: Explain) -> None:
    a, other = make_step("a"), make_step("other")
    b = make_step("b", a)
    assert set(explain(b, other, run_only=["^b$"])) == {"a", "b"}
    assert set(explain(b, other, show="^b$")) == {"b"}
    with pytest.raises(InvalidRequest, match="no step has such a name; steps are: a, b, other"):
        explain(b, other, show="nothing")


def test_each_directory_is_listed_once(
    make_step: MakeStep, make_executor: MakeExecutor, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_executor().run([make_step(f"d{index % 2}/s{index}", versioned(1)) for index in range(20)])
    listed: list[str] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: (listed.append(path), listdir(path))[1])
    found = explain(*(make_step(f"d{index % 2}/s{index}", versioned(2)) for index in range(20)))
    assert all(explanation.differences == [Difference("x", "1", "2")] for explanation in found.values())
    assert len(listed) == 2


def test_outputs_of_an_object_store(make_step: MakeStep, explain: Explain) -> None:
    with fsspec.open("memory://explained/dir/n-123456/.executor_info", "w") as file:
        file.write('{"version": {"name": "dir/n", "config": {"x": 1}, "dependencies": []}}')
    [found] = explain_steps(Executor("memory://explained", "memory://i"), [make_step("dir/n", versioned(2))])
    assert found.nearest == "memory://explained/dir/n-123456"
    assert found.differences == [Difference("x", "1", "2")]


def test_why_a_step_would_run_in_lines() -> None:
    plain = Explanation("a", "/p/a", PlannedAction.CACHED, "its output exists")
    run = Explanation("b", "/p/b", PlannedAction.RUN, "why", "/p/b-1", [Difference("k", "1", "2")])
    other = Explanation("c", "/p/c", PlannedAction.CACHED, "but", "/p/c", [Difference("j", None, "2")])
    same = Explanation("d", "/p/d", PlannedAction.WAIT, "why", "/p/d-1", [])
    assert explanation_lines([plain, run, other, same]) == [
        "explain: 4 step(s), 2 without a finished output", "cached  a  /p/a",
        "run     b  /p/b", "          why", "          differs from /p/b-1 in", "            k: 1 -> 2",
        *other.lines(),
        "wait    d  /p/d", "          why", f"explain: {WHAT_TO_TYPE}",
    ]  # fmt: skip
    assert len(other.lines()) == 4


def test_earlier_outputs_are_those_of_one_name(tmp_path: Path) -> None:
    for name in ("a-123456", "a-abcdef", "ab-123456", "a", "a-12345", "a-1234567", "a-ABCDEF", "d/a-111111"):
        (tmp_path / "x" / name).mkdir(parents=True)
    earlier = EarlierOutputs(str(tmp_path))
    assert earlier.of("x/a") == [f"{tmp_path}/x/a-123456", f"{tmp_path}/x/a-abcdef"]
    assert earlier.of("x/a-1234567") == []
    assert earlier.of("x/d/a") == [f"{tmp_path}/x/d/a-111111"]
    assert earlier.of("nothing/a") == []
    (tmp_path / "file").touch()
    assert earlier.of("file/a") == []


def test_as_an_option_of_the_script(
    make_step: MakeStep, prefix: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [make_step("a"), make_step("b")]
    monkeypatch.setattr(sys, "argv", ["script.py", "--explain", "--step", "^a$", "--prefix", prefix])
    paths = executor_main(steps=steps)
    assert set(paths) == set(steps)
    assert capsys.readouterr().out.splitlines()[:2] == [
        "explain: 1 step(s), 1 without a finished output",
        f"run     a  {paths[steps[0]]}",
    ]
    executor_main(ExecutorMainConfig(prefix=prefix, explain=True), steps=steps)
    assert "run     b  " in capsys.readouterr().out
    assert not os.path.exists(prefix)


SCRIPT = """
from helper import CONFIG
from marin.execution import ExecutorMainConfig, ExecutorStep, executor_main, versioned
def fn(config): raise AssertionError("ran")
if __name__ == "__main__":
    executor_main(CONFIG, steps=[ExecutorStep(name="a/b", fn=fn, config=versioned(1))])
"""


@pytest.mark.process
@pytest.mark.parametrize(("target", "has_config"), [("script.py", True), ("script", False), ("nothing.py", False)])
def test_as_a_tool_of_its_own(tmp_path: Path, target: str, has_config: bool) -> None:
    prefix = tmp_path / "prefix"
    (tmp_path / "script.py").write_text(SCRIPT)
    config = f"ExecutorMainConfig(prefix={str(prefix)!r})" if has_config else None
    (tmp_path / "helper.py").write_text(f"from marin.execution import ExecutorMainConfig\nCONFIG = {config}\n")
    words = [] if has_config else ["--prefix", str(prefix)]
    command = [sys.executable, "-m", "marin.explain", target, "--step", "a/.", *words]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert not prefix.exists()
    if target == "nothing.py":
        assert (result.returncode, "nothing.py" in result.stderr, "Traceback" in result.stderr) == (1, True, False)
        return
    assert result.returncode == 0, result.stderr
    assert f"run     a/b  {prefix}/a/b-" in result.stdout


def test_a_pinned_path_is_no_new_version(make_step: MakeStep, make_executor: MakeExecutor, explain: Explain) -> None:
    (made,) = make_executor().run([make_step("a", versioned(1))]).values()
    pinned = make_step("a", versioned(1), override_output_path="pinned/a")
    found = explain(pinned)["a"]
    assert found.action is PlannedAction.RUN
    assert found.reason == f"its output path is pinned; {made} has the same version"
    other = explain(make_step("a", versioned(2), override_output_path="pinned/a"))["a"]
    assert other.reason == "no output of this version exists yet"
    assert other.differences == [Difference("x", "1", "2")]
