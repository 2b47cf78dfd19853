"""What is written down about steps and runs."""

import dataclasses
import datetime
import enum
import inspect
import json
import os
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.execution import ExecutorStep
from marin.execution.config.encode import encode
from marin.execution.record.info import (
    ExecutorInfo,
    ExecutorStepInfo,
    StepText,
    bounded_version,
    caller_path,
    plain,
    user_name,
)
from marin.execution.version.canonical import strict, to_bytes
from rigging.errors import InvalidRequest
from support.marin.steps import MakeExecutor, MakeStep

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(content=st.dictionaries(st.text(), JSON, max_size=4))
def test_an_info_file_is_what_json_writes(content: dict[str, Any]) -> None:
    assert to_bytes(content).decode() == json.dumps(content, indent=2)


def test_other_keys_tuples_and_numbers_that_are_none() -> None:
    content = {1: (1, ()), None: {}, 0.5: float("nan"), "i": [float("inf"), -float("inf"), 1.5]}
    assert json.loads(to_bytes(content)) == {
        "1": [1, []], "null": {}, "0.5": "NaN", "i": ["Infinity", "-Infinity", 1.5],
    }  # fmt: skip
    assert strict({"a": (float("nan"), {"b": float("-inf")}), "c": 1}) == {"a": ["NaN", {"b": "-Infinity"}], "c": 1}
    assert strict("text") == "text"


def step_info(name: str = "a", **fields: Any) -> ExecutorStepInfo:
    base = {
        "name": name, "fn_name": "m.f", "config": {"x": 1}, "description": "d", "override_output_path": None,
        "version": {"name": name}, "dependencies": ["/p/b"], "output_path": f"/p/{name}",
    }  # fmt: skip
    return ExecutorStepInfo(**{**base, **fields})


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_info_of_a_run_holds_those_of_its_steps(count: int) -> None:
    steps = [step_info(f"s{number}", unversioned={"k": number}) for number in range(count)]
    info = ExecutorInfo("w", "c0ffee", "/x/script.py", "2024", "ann", "/p", None, steps)
    texts = [StepText.of(step) for step in steps]
    assert info.to_bytes(texts).decode() == json.dumps(info.to_json(), indent=2)
    assert info.file_name(texts).startswith("script-")
    assert len(info.file_name(texts)) == len("script-123456.json")


def test_the_name_of_a_runs_file_follows_from_what_counts_of_its_steps() -> None:
    info = ExecutorInfo("w", None, "/x/script.py", "2024", "ann", "/p", None, [])

    def name(*steps: ExecutorStepInfo) -> str:
        return info.file_name([StepText.of(step) for step in steps])

    a, b = step_info(), step_info("b")
    assert name(a) == name(step_info(description="other", unversioned={"k": 1}, source={"f": "1"}))
    one, other = object(), object()
    assert name(step_info(config=one)) == name(step_info(config=other)) != name(a), "addresses do not count"
    assert len({name(), name(a), name(b), name(a, b), name(b, a)}) == 5


def test_long_versions_name_their_dependencies(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    version = cast(Any, SimpleNamespace(version={"name": "n", "config": {}, "dependencies": [{"large": 1}]}))
    assert bounded_version(version, ["a-1"], []) == {"name": "n", "config": {}, "dependencies": ["a-1"]}
    assert bounded_version(version, [], ["b-2"])["pseudo_dependencies"] == ["b-2"]
    layer: list[ExecutorStep[Any]] = []
    for depth in range(5):
        layer = [make_step(f"layer{depth}/step{index}", list(layer)) for index in range(20)]
    executor = make_executor()
    executor.run(layer)
    infos = {step: Path(path, ".executor_info") for step, path in executor.output_paths.items()}
    assert max(info.stat().st_size for info in infos.values()) < 1 << 21
    paths = [executor.output_paths[step] for step in executor.dependencies[layer[0]]]
    found = json.loads(infos[layer[0]].read_text())["version"]["dependencies"]
    assert found == [Path(path).relative_to(executor.prefix).as_posix() for path in paths]


class Size(enum.Enum):
    BIG = "big"


class Meters(int):
    def __str__(self) -> str:
        return f"{int(self)} m"

    __repr__ = __str__


class Share(float):
    def __repr__(self) -> str:
        return "a share"


class Name(str):
    def __str__(self) -> str:
        return "a name"


@dataclasses.dataclass
class Config:
    x: Any = None
    late: Any = dataclasses.field(init=False)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Size.BIG, "big"), (Config(Size.BIG), {"x": "big", "late": None}), ((1, [Size.BIG]), [1, ["big"]]),
        ({3, 1, 2}, [1, 2, 3]), (frozenset({"b", "a"}), ["a", "b"]), (True, True), (int, "<class 'int'>"),
        ({Size.BIG: 1, None: 2, (1,): 3}, {"big": 1, None: 2, "(1,)": 3}),
        (datetime.timedelta(1, 2, 3), {"days": 1, "seconds": 2, "microseconds": 3}), (PurePosixPath("/a"), "/a"),
    ],
)  # fmt: skip
def test_any_value_has_a_plain_form(value: Any, form: Any) -> None:
    assert plain(value) == form


def test_numbers_and_texts_of_a_kind_of_their_own_count_as_what_they_are() -> None:
    given = {"a": Meters(5), "b": Share(0.5), "c": Name("x")}
    encoded = {key: encode(value, key, str) for key, value in given.items()}
    assert encoded == plain(given) == {"a": 5, "b": 0.5, "c": "x"}
    assert [type(value) for value in encoded.values()] == [int, float, str]


def test_users_and_callers_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise KeyError("getpwuid(): uid not found")

    assert user_name()
    monkeypatch.setattr("getpass.getuser", fail)
    assert user_name() == f"uid-{os.getuid()}"
    assert caller_path() == __file__
    monkeypatch.setattr(inspect, "currentframe", lambda: None)
    assert caller_path() == "<unknown>"


def test_write_infos_writes_all_without_running(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor = make_executor()
    with pytest.raises(InvalidRequest, match="no info file yet"):
        executor.get_experiment_url()
    executor.compute_version(make_step("a", make_step("b")))
    executor.write_infos()
    for path in executor.output_paths.values():
        assert Path(path, ".executor_info").is_file()
        assert not Path(path, ".executor_status").exists()


def test_the_url_in_the_data_browser(make_executor: MakeExecutor, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = make_executor()
    executor.write_infos()
    assert executor.get_experiment_url() == executor.executor_info_path
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    assert executor.browse_words() == f"uv run marin browser --prefix {prefix}"
    monkeypatch.setenv("MARIN_DATA_BROWSER_URL", "https://browser/")
    assert executor.get_experiment_url().startswith("https://browser/experiment?path=%2F")
    monkeypatch.setenv("MARIN_BROWSER_URL", "https://pages")
    assert executor.get_experiment_url().startswith("https://pages/experiment?path=%2F")
    assert executor.browse_words() == executor.get_experiment_url()
