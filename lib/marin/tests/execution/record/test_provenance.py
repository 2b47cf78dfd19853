import contextlib
import functools
import hashlib
import importlib.util
import inspect
import json
import linecache
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy
import pytest

from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.config.array_text import array_text
from marin.execution.jobs.remote import remote
from marin.execution.record.function_source import function_source
from marin.execution.record.info import STEP_INFO_FILE, ExecutorStepInfo, StepText
from marin.execution.record.provenance import parse_info, provenance_differences, refuse_differences
from marin.execution.report.events import StepEnd
from marin.execution.run.step_runner import StepRunner
from marin.execution.script.explain import explain_steps
from marin.execution.script.main import summary_lines
from marin.execution.step_spec import StepSpec
from marin.execution.version.differences import Difference
from rigging.errors import Conflict, StepFailed
from support.marin.steps import MakeExecutor, MakeStep

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Import an experiment's source anew, as another process would that runs it after an edit."""
    count = 0

    def load(source: str) -> ModuleType:
        nonlocal count
        count += 1
        path = tmp_path / f"edit{count}" / "experiment.py"
        path.parent.mkdir()
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("experiment", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["experiment"] = module
        spec.loader.exec_module(module)
        return module

    return load


def test_unversioned_values(make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = (make_step("a", versioned(1), {"K": k, "n": 1}) for k in (10, 99))
    make_executor().run([first])
    executor = make_executor()
    executor.run([second])
    assert executor.results[-1].end is StepEnd.CACHED
    assert "step a: already done" in caplog.text
    assert "y.K: 10 -> 99" in caplog.text
    assert [record.levelname for record in caplog.records if "y.K" in record.getMessage()] == ["WARNING"]
    assert "y.K: 10 -> 99" in summary_lines(executor.results, None)[0]
    logs = [log.read_text() for log in Path(executor.executor_info_base_path).glob("*.events.jsonl")]
    ended = [json.loads(line) for log in logs for line in log.splitlines() if '"step_ended"' in line]
    assert {event["status"]: event["differences"] for event in ended} == {"succeeded": [], "cached": ["y.K: 10 -> 99"]}
    [explanation] = explain_steps(make_executor(), [second])
    assert explanation.lines()[1:] == [
        "          its output exists, made with other unversioned values or code",
        f"          differs from {explanation.path} in",
        "            y.K: 10 -> 99",
    ]


def test_strict_refuses_before_anything_runs(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    make_executor().run([make_step("a", versioned(1), 10)])
    ran: list[Any] = []
    with pytest.raises(Conflict, match=r"1 output\(s\)(.|\n)*y: 10 -> 99(.|\n)*Make relevant values versioned"):
        make_executor().run([make_step("a", versioned(1), 99), make_step("fresh", fn=ran.append)], strict=True)
    assert ran == []
    make_executor().run([make_step("a", versioned(1), override_output_path="pinned")])
    with pytest.raises(Conflict, match="x: 1 -> 2"):
        make_executor().run([make_step("a", versioned(2), override_output_path="pinned")], strict=True)


@pytest.mark.parametrize("is_strict", [False, True])
def test_an_output_that_another_run_has_made(make_step: MakeStep, make_executor: MakeExecutor, is_strict: bool) -> None:
    other = make_executor()
    first = make_step("a", fn=lambda _: other.run([make_step("b", versioned(1), 10)]))
    executor = make_executor()
    with pytest.raises(StepFailed, match="y: 10 -> 99") if is_strict else contextlib.nullcontext():
        executor.run([first, make_step("b", versioned(1), 99)], max_concurrent=1, strict=is_strict)
    [result] = [result for result in executor.results if result.task.name == "b"]
    assert result.end is (StepEnd.FAILED if is_strict else StepEnd.CACHED)


def test_steps_of_one_run_that_differ_in_what_does_not_count(
    make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture, load: Load
) -> None:
    steps = [make_step("a", versioned(1), {"K": k, "api_key": f"sesame-{k}"}) for k in (10, 99)]
    source = "def train(config):\n    return 1\n"
    steps += [ExecutorStep("b", load(text).train, versioned(1)) for text in (source, source.replace("1", "2"))]
    with pytest.raises(Conflict, match=r"strict: nothing has run: .*a-\w+: .*\(y.K: 10 -> 99\)(.|\n)*source of train"):
        make_executor().run(steps, strict=True)
    for run in (lambda: make_executor().run(steps, dry_run=True), lambda: explain_steps(make_executor(), steps)):
        caplog.clear()
        run()
        assert "only the first of them is run" in caplog.text
    executor = make_executor()
    executor.run(steps)
    assert len(executor.results) == 2
    assert "sesame" not in caplog.text
    caplog.clear()
    make_executor().run([steps[0], make_step("a", versioned(1), {"K": 10, "api_key": "other"}), steps[2]])
    assert "only the first" not in caplog.text


CODE = "K = 10\ndef half(x):\n    return x / 2\ndef train(config):\n    return half(K)\nf = train\n"


def test_of_a_sweep_that_is_one_step_some_points_are_told(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    steps = [make_step("a", versioned(1), {"K": k}) for k in range(50)]
    with pytest.raises(Conflict, match=r"y.K: 0 -> 10; and 39 more\), so only the first"):
        make_executor().run(steps, strict=True)


@pytest.mark.parametrize(
    ("source", "edit", "named"),
    [
        (CODE, ("half(K)", "half(K) + 1"), "source of train: "), (CODE, ("x / 2", "x // 2"), "source of half: "),
        (CODE, ("10", "99"), "K: 10 -> 99"),
        ("class B:\n    def go(s): return 1\nclass K(B): pass\ndef f(c): return K().go()\n", ("1", "2"),
         "source of B: "),
        ("import numpy\nA = numpy.array([1])\ndef f(c): return A.tolist()\n", ("[1]", "[2]"), "A: "),
        ("import numpy\nA = numpy.zeros(9000)\nA[4000] = 1\ndef f(c): return A\n", ("] = 1", "] = 2"), "A: "),
        ("def a(): return 1\nT = dict(a=a)\ndef f(c): return T['a']()\n", ("1", "2"), "source of a: "),
        ("def a(): return 1\nT = (('a', a),)\ndef f(c): return T[0][1]()\n", ("1", "2"), "source of a: "),
        ("def a(): return 1\ndef b(): return 2\nT = {'f': a, 'k': 3}\ndef f(c): return T\n", ("a, 'k'", "b, 'k'"),
         "T: "),
        ("class K:\n    def __init__(s, n): s.n = n\n    def __call__(s, c): pass\nf = K(1)\n", ("1", "2"),
         "attribute n: 1 -> 2"),
        ("class K:\n    __slots__ = 'n'\n    def __init__(s, n): s.n = n\n    def go(s, c): pass\nf = K(1).go\n",
         ("K(1)", "K(2)"), "attribute n: 1 -> 2"),
        ("def a(): return 1\nclass K:\n    @property\n    def p(s): return a()\ndef f(c): return K().p\n", ("1", "2"),
         "source of a: "),
        ("n = 1\ndef f(c, d=1, lr=n * 2): return lr\n", ("n = 1", "n = 3"), "default lr of f: 2 -> 6"),
        ("n = 1\ndef f(c, *, d=1, lr=n): return lr\n", ("n = 1", "n = 3"), "default lr of f: 1 -> 3"),
        ("def a(): return 1\ndef f(c, g=a): return g()\n", ("1", "2"), "source of a: "),
        ("import functools\ndef a(): return 1\ndef g(h, c): pass\nf = functools.partial(g, a)\n", ("1", "2"),
         "source of a: "),
        ("def a(): return 1\nclass K:\n    def __init__(s, h): s._h = h\n    def go(s, c): pass\nf = K(a).go\n",
         ("1", "2"), "source of a: "),
    ],
)  # fmt: skip
def test_functions(source: str, edit: tuple[str, str], named: str, load: Load, make_executor: MakeExecutor) -> None:
    make_executor().run([ExecutorStep("a", load(source).f, versioned(1))])
    executor = make_executor()
    executor.run([ExecutorStep("a", load(source).f, versioned(1))])
    assert not executor.results[0].differences
    executor = make_executor()
    executor.run([ExecutorStep("a", load(source.replace(*edit)).f, versioned(1))])
    assert any(str(difference).startswith(named) for difference in executor.results[0].differences)
    if source is CODE:
        assert len(executor.results[0].differences) == 1


def test_a_table_that_holds_itself_or_what_is_not_plain_is_left_out(load: Load) -> None:
    source = "T = []\nT.append(T)\nO = [object()]\ndef f(c): return T, O\n"
    assert set(function_source(load(source).f)) == {"f"}


@pytest.mark.parametrize("size", [3, 6001, 500_000])
def test_arrays_are_told_apart_by_what_they_hold(size: int, make_step: MakeStep, make_executor: MakeExecutor) -> None:
    first, second = numpy.zeros(size), numpy.zeros(size)
    second[size // 2 if size < 10_000 else -1] = 1e-12
    make_executor().run([make_step("a", first, versioned(1))])
    for value, count in [(numpy.zeros(size), 0), (second, 1)]:
        executor = make_executor()
        executor.run([make_step("a", value, versioned(1))], strict=not count)
        assert len(executor.results[0].differences) == count


def test_the_text_of_an_array_says_when_it_is_of_a_sample() -> None:
    column = numpy.arange(12).reshape(3, 4)[:, 1]
    assert array_text(column, 100) == array_text(column.copy(), 100)
    assert str(array_text(column, 100)).startswith("int64[3] ")
    assert str(array_text(numpy.arange(5000), 1000)).endswith(" of a sample")
    # Of this release and of all later ones: another text would be another version of the step.
    assert array_text(numpy.arange(4), 100) == "int64[4] e1ee3e32a0cd57eb"
    for kind in (object, numpy.longdouble, [("a", "i1"), ("b", "f8")]):
        assert array_text(numpy.zeros(3, kind), 100) is None


def test_what_does_not_change_the_code_is_not_a_change(load: Load) -> None:
    plain = "def other(): return 1\ndef train(config):\n    return 'a#b'\n"
    edited = (
        "from marin.execution.jobs.remote import remote\n\n"
        "def other(): return 2\n@remote\ndef train(config):\n    '''Train.'''\n\n    return 'a#b'  # why\n"
    )
    assert function_source(load(plain).train) == function_source(load(edited).train)
    assert set(function_source(load(plain).train)) == {"train"}


def own(*_: Any, **__: Any) -> None:
    """A function of this module."""


def test_what_is_bound_to_a_function_counts() -> None:
    def scaled(factor: int) -> Callable[[Any], int]:
        return lambda _: factor

    assert function_source(scaled(1)) != function_source(scaled(2))
    assert function_source(functools.partial(own, 1)) != function_source(functools.partial(own, 2))
    bound = function_source(functools.partial(own, api_key="sesame", lr=0.1))
    assert bound["argument lr"] == "0.1"
    assert "sesame" not in str(bound)
    tables = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]
    first, second = (function_source(functools.partial(own, table)) for table in tables)
    assert first == second, "the order of a table's keys is no part of it"
    assert function_source(remote(own)) == function_source(own) != {}
    assert function_source(print) == function_source(None) == {}


def test_what_changes_as_the_program_runs_is_no_part_of_its_code(load: Load) -> None:
    source = "seen = []\n_CACHE = {}\nSIZES = [1, 2]\nNAME = 'x'\ndef fn(c):\n    return seen, _CACHE, SIZES, NAME\n"
    assert set(function_source(load(source).fn)) == {"fn", "SIZES", "NAME"}
    changed = function_source(load(source.replace("[1, 2]", "[1, 3]")).fn)
    assert changed["SIZES"] == "[1, 3]"


def test_a_constant_with_the_name_of_somebody_elses_attribute_is_not_read(load: Load) -> None:
    source = "SIZE = 1\nLIMIT = 2\ndef fn(c):\n    LIMIT = c.SIZE\n    return LIMIT\n"
    assert set(function_source(load(source).fn)) == {"fn"}


@pytest.mark.parametrize("number", ["41", "42", "43", "44"])
def test_functions_of_one_name_all_count(number: str, load: Load) -> None:
    source = """import functools
one = lambda c: 41
two = lambda c: 42
@functools.singledispatch
def case(c): ...
@case.register
def _(c: int): return 43
@case.register
def _(c: str): return 44
def step(c): return one(c), two(c), case(c)
"""
    first, second = load(source), load(source)
    other = load(source.replace(number, "9"))
    assert function_source(first.step) == function_source(second.step) != function_source(other.step)


def test_a_lambda_is_its_own_text_alone(load: Load) -> None:
    first, second = load("step = (lambda c: c + 1, 10)\n"), load("step = (lambda c: c + 1, 99)\n")
    third = load("step = (lambda c: c + 2, 10)\n")
    assert function_source(first.step[0]) == function_source(second.step[0]) != function_source(third.step[0])


def test_a_class_is_looked_for_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "class Model: pass\ndef made(k):\n    def train(c):\n        return Model, k\n    return train\n"
    module, looked_for, getsource = load(source), [], inspect.getsource
    monkeypatch.setattr(inspect, "getsource", lambda item: looked_for.append(item) or getsource(item))
    sources = [function_source(module.made(k)) for k in range(10)]
    assert {found["k"] for found in sources} == {str(k) for k in range(10)}
    assert looked_for.count(module.Model) == 1


def test_a_constant_that_a_notebook_changes_is_seen_by_the_next_run(make_executor: MakeExecutor, load: Load) -> None:
    module = load("K = 1\ndef train(c):\n    return K\n")
    make_executor().run([ExecutorStep("a", module.train, versioned(1))])
    module.K = 2
    executor = make_executor()
    executor.run([ExecutorStep("a", module.train, versioned(1))])
    assert [str(difference) for difference in executor.results[0].differences] == ["K: 1 -> 2"]


CELL = """
from dataclasses import dataclass
class Plain:
    @staticmethod
    def method(n):  # a comment
        return n{plus}
@dataclass
class Options:
    rate: float{default}
    tag: "str" = "x"
class Empty:
    pass
def train(c):
    return Plain, Options, Empty
"""


@pytest.fixture
def run_cell(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Run a notebook's cell, whose `__main__` has no file; returns its function `train`."""

    def run_cell(source: str) -> Any:
        name = f"<cell {source}>"
        monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(True), name))
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, name, "exec"), names)
        return names["train"]

    return run_cell


def test_cells_whose_functions_differ_in_a_default_alone(run_cell: Callable[[str], Any]) -> None:
    functions = [run_cell(f"def train(c, k={number}):\n    return k\n") for number in (1, 2)]
    assert functions[0].__code__ == functions[1].__code__
    first, second = map(function_source, functions)
    assert set(first) == {"train"}
    assert first != second


def test_classes_of_cells_count_by_their_fields_and_methods(run_cell: Callable[[str], Any]) -> None:
    def source_with(**parts: str) -> dict[str, str]:
        return function_source(run_cell(CELL.format(**parts)))

    base = source_with(plus=" + 1", default="")
    assert set(base) == {"train", "Plain", "Options"}
    assert base == source_with(plus=" + 1  # another comment", default="")
    other = source_with(plus=" + 2", default=" = 0.1")
    assert {name for name in base if base[name] != other[name]} == {"Plain", "Options"}


def test_the_name_of_a_runs_file_is_that_of_earlier_releases(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor = make_executor()
    executor.compute_version(make_step("a", versioned(1), {"api_key": "sesame"}))
    executor.get_infos()
    [info] = executor.step_infos
    as_then = {
        "name": "a", "fn_name": info.fn_name, "config": {"x": 1, "y": {"api_key": "sesame"}},
        "override_output_path": None, "version": info.version, "dependencies": [], "output_path": info.output_path,
    }  # fmt: skip
    digest = hashlib.md5(json.dumps([as_then], sort_keys=True).encode()).hexdigest()[:6]
    assert executor.executor_info.file_name([StepText.of(info)]).endswith(f"-{digest}.json")


def test_secrets_are_not_written_down(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    step = make_step("a", versioned(1), {"api_key": "sesame", "nested": [{"hf_token": "x"}], "max_tokens": 5})
    executor = make_executor()
    [path] = executor.run([step]).values()
    for file in (Path(path, STEP_INFO_FILE), Path(executor.executor_info_path)):
        text = file.read_text()
        assert "sesame" not in text
        assert '"hf_token": "x"' not in text
        assert '"max_tokens": 5' in text
    assert executor.configs[step].y["api_key"] == "sesame"
    again = make_executor()
    again.run([make_step("a", versioned(1), {**step.config.y, "api_key": "another"})], strict=True)


def test_numbers_that_are_none_are_strict_json(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    nan, infinite = float("nan"), float("-inf")
    step = make_step("a", versioned([nan, infinite]), {"z": (nan, infinite)})
    executor = make_executor()
    [path] = executor.run([step]).values()
    for file in (Path(path, STEP_INFO_FILE), Path(executor.executor_info_path)):
        json.loads(file.read_text(), parse_constant=refuse)
    info = json.loads(Path(path, STEP_INFO_FILE).read_text())
    assert info["config"]["y"] == {"z": ["NaN", "-Infinity"]}
    # Neither what this release wrote nor what earlier ones did is another version.
    for text in (Path(path, STEP_INFO_FILE).read_text(), json.dumps(info).replace('"NaN"', "NaN")):
        Path(path, STEP_INFO_FILE).write_text(text)
        again = make_executor()
        again.run([step], strict=True)
        assert again.results[0].end is StepEnd.CACHED


def test_a_bare_spec_says_which_code_differs(prefix: str, load: Load, caplog: pytest.LogCaptureFixture) -> None:
    source = "def write(path):\n    return {}\n"

    def spec(module: ModuleType) -> StepSpec:
        return StepSpec("spec", output_path_prefix=prefix, hash_attrs={"api_key": "sesame"}, fn=module.write)

    first, second = spec(load(source.format(1))), spec(load(source.format(2)))
    StepRunner().run([first])
    assert "sesame" not in Path(first.output_path, STEP_INFO_FILE).read_text()
    StepRunner().run([first])
    assert "source of write" not in caplog.text
    StepRunner().run([second])
    assert caplog.text.count("made with other values or code: source of write: ") == 1
    # The same step for an executor is made of the same.
    executor = Executor(prefix, f"{prefix}/experiments")
    executor.run([first.as_executor_step()])
    assert not executor.results[0].differences
    executor = Executor(prefix, f"{prefix}/experiments")
    executor.run([second.as_executor_step()])
    assert "source of write" in str(executor.results[0].differences[0])


def now(unversioned: Any = None, source: Any = None) -> ExecutorStepInfo:
    return cast(ExecutorStepInfo, SimpleNamespace(unversioned=unversioned or {}, source=source or {}, reached={}))


@pytest.mark.parametrize(
    ("content", "info"),
    [
        (None, None), (b"", None), (b"[1]", None), (b'"x"', None), (b'{"a": 1', None), (b"{}", {}),
        (b'{"a": 1}', {"a": 1}),
        (b"[" * 100_000, None),
    ],
)  # fmt: skip
def test_an_info_that_is_none(content: bytes | None, info: Any) -> None:
    assert parse_info(content) == info


def words(there: dict[str, Any], info: ExecutorStepInfo) -> list[str]:
    return [str(found) for found in provenance_differences(there, info)]


def test_what_was_not_recorded_is_not_compared() -> None:
    info = now({"k": 1}, {"f": "source 1"})
    for there in ({}, {"unversioned": None, "source": None}, {"unversioned": "x", "source": 3}, {"source": {}}):
        assert words(there, info) == []
    assert words({"source": {"f": "source 2"}}, now()) == []


def test_values_and_code_that_differ() -> None:
    there = {
        "unversioned": {"k": 10, "gone": 1, "same": [1]},
        "source": {"f": "source 0a1b", "old": "source 99", "N": "3", "same": "source 7"},
    }
    info = now(
        {"k": 99, "new": {"x": 1}, "same": [1]},
        {"f": "source 2c3d", "added": "source 5", "N": "4", "M": "5", "same": "source 7"},
    )
    assert words(there, info) == [
        "k: 10 -> 99",
        'new: {"x": 1} (new)',
        "gone: was 1 (removed)",
        "source of f: 0a1b -> 2c3d",
        "source of added: 5 (new)",
        "N: 3 -> 4",
        "M: 5 (new)",
        "source of old: was 99 (removed)",
    ]


def test_outputs_that_were_made_otherwise_are_refused_together() -> None:
    one = [Difference("k", "1", "2")]
    refuse_differences({})
    refuse_differences({"/a": [], "/b": []})
    with pytest.raises(Conflict) as refused:
        refuse_differences({"/a": one, "/b": [], "/c": one})
    lines = str(refused.value).splitlines()
    assert lines[0].startswith("strict: 2 output(s) that are there were made otherwise")
    assert lines[1:3] == ["  /a: k: 1 -> 2", "  /c: k: 1 -> 2"]
    assert lines[3].startswith("Nothing of them has run.")
    for count, more in ((20, False), (21, True)):
        with pytest.raises(Conflict) as refused:
            refuse_differences({f"/{number}": one for number in range(count)})
        assert ("  and 1 more; --explain lists all" in str(refused.value)) is more
        assert str(refused.value).count("k: 1 -> 2") == 20
