"""Steps without a config (their published examples are in test_vectors)."""

import pickle

import pytest

from fray.types import ResourceConfig
from marin.execution import Executor, ExecutorStep
from marin.execution.jobs.remote import function_name
from marin.execution.step_spec import ExecutorStepFunction, StepSpec, resolve_executor_step
from rigging.errors import InvalidRequest


def test_deps() -> None:
    b, a = (StepSpec(name=name, output_path_prefix="/p") for name in "ba")
    one = StepSpec(name="n", deps=[a, b])
    other = StepSpec(name="n", deps=[b, a])
    assert one.hash_id == other.hash_id != StepSpec(name="n", deps=[a]).hash_id
    assert one.dep_paths == [a.output_path, b.output_path]
    assert one.dep_names == [a.name_with_hash, b.name_with_hash]


def test_the_prefix_is_the_processes_own_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "/mine")
    spec = StepSpec(name="n")
    assert spec.output_path == f"/mine/{spec.name_with_hash}"


def test_what_is_not_json_or_leaves_the_prefix_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"step 'n': hash_attrs .* is not plain JSON"):
        _ = StepSpec(name="n", hash_attrs={"k": {1, 2}}).hash_id
    with pytest.raises(InvalidRequest, match=r"'\.\.' part"):
        StepSpec(name="../n")
    with pytest.raises(InvalidRequest, match=r"'\.\.' part"):
        StepSpec(name="n", override_output_path="../n")


def make_nothing(output_path: str) -> None:
    """A spec's function."""


def test_as_an_executor_step() -> None:
    dep = StepSpec(name="dep", output_path_prefix="/p", hash_attrs={"k": 1}, fn=make_nothing)
    spec = StepSpec(
        name="top", output_path_prefix="/p", hash_attrs={"a": [1, 2]}, deps=[dep], resources=ResourceConfig(cpu=2)
    )
    step = spec.as_executor_step()
    assert step is spec.as_executor_step()
    assert step.resources == spec.resources
    executor = Executor("/elsewhere", "/elsewhere/experiments")
    executor.compute_version(step)
    assert executor.output_paths == {dep.as_executor_step(): dep.output_path, step: spec.output_path}
    assert executor.versions[step] == {
        "name": "top",
        "config": {"attrs": {"a": [1, 2]}, "deps.[0]": "DEP[0]"},
        "dependencies": [{"name": "dep", "config": {"attrs": {"k": 1}}, "dependencies": []}],
    }
    assert function_name(dep.as_executor_step().fn).endswith("test_step_spec.make_nothing")


def test_a_round_trip_keeps_identity() -> None:
    spec = StepSpec(name="n", output_path_prefix="/p", fn=make_nothing)
    step = spec.as_executor_step()
    assert resolve_executor_step(step, step.config, spec.output_path) is spec
    moved = resolve_executor_step(step, step.config, "/elsewhere")
    assert moved.output_path == "/elsewhere"

    plain = ExecutorStep(name="plain", fn=print, config=None)
    resolved = resolve_executor_step(plain, None, "/p/plain-123456", deps=[spec])
    assert resolved.as_executor_step() is plain
    assert resolve_executor_step(plain, None, "/p/plain-123456").output_path == "/p/plain-123456"
    assert (resolved.name, resolved.dep_names) == ("plain", [spec.name_with_hash])


def test_functions_see_what_they_expect() -> None:
    seen: list[object] = []
    spec = StepSpec(name="n", output_path_prefix="/p", fn=seen.append)
    step = spec.as_executor_step()
    assert step.fn is not None
    step.fn(step.config)
    plain = ExecutorStep(name="plain", fn=seen.append, config=None)
    resolved = resolve_executor_step(plain, {"filled": "in"}, "/p/plain")
    assert resolved.fn is not None
    resolved.fn(resolved.output_path)
    assert seen == [spec.output_path, {"filled": "in"}]


def test_pickling_leaves_the_graph_behind() -> None:
    deps: list[StepSpec] = []
    for index in range(50):
        deps = [StepSpec(name=f"s{index}", deps=deps, hash_attrs={"text": "x" * 1000}, fn=make_nothing)]
    fn = deps[0].as_executor_step().fn
    assert len(pickle.dumps(fn)) < 500
    assert pickle.loads(pickle.dumps(fn)).output_path == deps[0].output_path
    sent = pickle.loads(pickle.dumps(ExecutorStepFunction(ExecutorStep("a", make_nothing, None), sum, [1, 2])))
    assert sent.step is None
    assert sent("/out") == 3


def test_what_is_no_spec_is_refused_as_a_dep() -> None:
    step = ExecutorStep(name="a", fn=make_nothing, config=None)
    words = r"step 'b': deps: ExecutorStep\(name='a'\) is a ExecutorStep, not a StepSpec"
    with pytest.raises(InvalidRequest, match=words):
        StepSpec(name="b", deps=[step])  # type: ignore[list-item]


def test_long_chains_need_no_recursion() -> None:
    spec = StepSpec(name="s0", output_path_prefix="/p")
    for index in range(1, 3000):
        spec = StepSpec(name=f"s{index}", output_path_prefix="/p", deps=[spec])
    assert len(spec.hash_id) == 8
    assert spec.as_executor_step().override_output_path == spec.output_path
