"""Info files as texts, jobs that are waited for, functions that become jobs, and configs filled in at their edges."""

import dataclasses
import datetime
import enum
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray import JobStatus, ResourceConfig
from marin.execution import Executor, ExecutorStep, instantiate_config, mirrored, this_output_path, versioned
from marin.execution.config.encode import encode
from marin.execution.config.instantiate import mirror_path, rebuild, resolve_local_placeholders
from marin.execution.jobs.placement import LiveJobs, check_function, remote_function
from marin.execution.jobs.remote import remote
from marin.execution.record.info import ExecutorInfo, ExecutorStepInfo, StepText, bounded_version, plain, user_name
from marin.execution.version.canonical import strict, to_bytes
from marin.utils import fsspec_glob, fsspec_size, rebase_file_path
from rigging.errors import InvalidRequest, NotFound, Unavailable

MakeStep = Callable[..., ExecutorStep[Any]]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
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
    assert json.loads(info.to_bytes(texts)) == info.to_json()
    assert info.to_bytes(texts).decode() == json.dumps(info.to_json(), indent=2)
    assert info.file_name(texts).startswith("script-")
    assert len(info.file_name(texts)) == len("script-123456.json")


def test_the_name_of_a_runs_file_follows_from_what_counts_of_its_steps() -> None:
    info = ExecutorInfo("w", None, "/x/script.py", "2024", "ann", "/p", None, [])

    def name(*steps: ExecutorStepInfo) -> str:
        return info.file_name([StepText.of(step) for step in steps])

    assert name(step_info()) == name(step_info(description="other", unversioned={"k": 1}, source={"f": "1"}))
    assert (
        len(
            {
                name(),
                name(step_info()),
                name(step_info("b")),
                name(step_info(), step_info("b")),
                name(step_info("b"), step_info()),
            }
        )
        == 5
    )


def test_secrets_of_what_is_not_versioned_are_not_written() -> None:
    info = step_info(config={"api_key": "x"}, unversioned={"token": "y", "k": 1}, source={"f": "z"})
    found = info.to_json()
    assert "x" not in str(found["config"].values())
    assert found["unversioned"]["k"] == 1
    assert found["unversioned"]["token"] != "y"
    assert found["source"] == {"f": "z"}
    assert info.identity()["config"] == {"api_key": "x"}, "as earlier releases wrote it"


def test_long_versions_name_their_dependencies() -> None:
    version = cast(Any, SimpleNamespace(version={"name": "n", "config": {}, "dependencies": [{"large": 1}]}))
    assert bounded_version(version, ["a-1"], []) == {"name": "n", "config": {}, "dependencies": ["a-1"]}
    assert bounded_version(version, [], ["b-2"])["pseudo_dependencies"] == ["b-2"]


class Size(enum.Enum):
    BIG = "big"


@dataclasses.dataclass
class Config:
    x: Any = None
    late: Any = dataclasses.field(init=False)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Size.BIG, "big"), (Config(Size.BIG), {"x": "big", "late": None}), ((1, [Size.BIG]), [1, ["big"]]),
        ({3, 1, 2}, [1, 2, 3]), (frozenset({"b", "a"}), ["a", "b"]),
        ({Size.BIG: 1, None: 2, (1,): 3}, {"big": 1, None: 2, "(1,)": 3}),
        (datetime.timedelta(1, 2, 3), {"days": 1, "seconds": 2, "microseconds": 3}), (PurePosixPath("/a"), "/a"),
    ],
)  # fmt: skip
def test_any_value_has_a_plain_form(value: Any, form: Any) -> None:
    assert plain(value) == form


class Handle:
    def __init__(self, job_id: str = "j", error: Exception | None = None) -> None:
        self.job_id = job_id
        self.done: list[str] = []
        self.error = error
        self.during: Callable[[], object] = lambda: None

    def status(self) -> JobStatus:
        return JobStatus.RUNNING

    def wait(self) -> None:
        self.done.append("wait")
        self.during()

    def terminate(self) -> None:
        self.done.append("terminate")
        if self.error is not None:
            raise self.error


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise KeyError("getpwuid(): uid not found")

    assert user_name()
    monkeypatch.setattr("getpass.getuser", fail)
    assert user_name() == f"uid-{os.getuid()}"


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


def test_numbers_and_texts_of_a_kind_of_their_own_count_as_what_they_are() -> None:
    given = {"a": Meters(5), "b": Share(0.5), "c": Name("x")}
    encoded = {key: encode(value, key, str) for key, value in given.items()}
    assert encoded == plain(given) == {"a": 5, "b": 0.5, "c": "x"}
    assert [type(value) for value in encoded.values()] == [int, float, str]


def test_jobs_are_stopped_with_their_run_or_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    jobs, handle, other = LiveJobs(), Handle(), Handle("k", Unavailable("no route"))
    other.during = lambda: (jobs.terminate_one("/p/b"), jobs.terminate_one("/p/none"))
    jobs.wait(cast(Any, other), "/p/b")
    assert other.done == ["wait", "terminate"]
    assert "stopping job k: its step lost the lease on /p/b" in caplog.text
    assert "could not stop job k: no route" in caplog.text
    jobs.terminate_one("/p/b")
    assert other.done == ["wait", "terminate"], "it is over"
    found: list[bool] = []
    handle.during = lambda: found.append(jobs.terminate())
    jobs.wait(cast(Any, handle), "/p/a")
    assert (handle.done, found) == (["wait", "terminate"], [True])
    late = Handle()
    jobs.wait(cast(Any, late), "/p/c")
    assert late.done == ["terminate", "wait"], "the run has been stopped"
    assert not jobs.terminate()
    assert jobs.take_log("/p/a") == "job j"
    assert jobs.take_log("/p/a") is None


def work(config: Any) -> None:
    """A step's function."""


def generating(config: Any) -> Any:
    yield 1


def test_which_functions_become_jobs(make_step: MakeStep) -> None:
    assert remote_function(make_step("a", fn=work)) is None
    assert remote_function(make_step("a", fn=None)) is None
    cpu, own = ResourceConfig(cpu=4), ResourceConfig(cpu=2)
    plain_job = remote_function(make_step("a", fn=work, resources=cpu))
    assert plain_job is not None
    assert (plain_job.fn, plain_job.resources) == (work, cpu)
    grouped = remote_function(make_step("a", fn=work, pip_dependency_groups=["x"]))
    assert grouped is not None
    assert tuple(grouped.pip_dependency_groups) == ("x",)
    fn = remote(work, resources=own, pip_dependency_groups=["x", "y"])
    both = remote_function(make_step("a", fn=fn, resources=cpu, pip_dependency_groups=["y", "z"]))
    assert both is not None
    assert (both.resources, both.pip_dependency_groups) == (cpu, ("x", "y", "z"))
    alone = remote_function(make_step("a", fn=fn))
    assert alone is not None
    assert alone.resources == own


@pytest.mark.parametrize("fn", [generating, functools.partial(generating)])
def test_a_generator_function_is_refused(make_step: MakeStep, fn: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"step 'a': .*generating"):
        check_function(make_step("a", fn=fn))
    check_function(make_step("a", fn=work))
    check_function(make_step("a", fn=None))
    check_function(make_step("a", fn=remote(functools.partial(work))))


@pytest.mark.parametrize(
    ("path", "prefix", "found"),
    [
        ("a/b", "/p", "mirror://a/b"), ("/p/a", "/p", "mirror://a"), ("/p/a", "/p/", "mirror://a"),
        ("mirror://x", None, "mirror://x"),
        ("gs://b/a", "gs://b", "mirror://a"), ("gs://other/a", "gs://b", "mirror://gs://other/a"), (Path("a"), None, "mirror://a"),
    ],
)  # fmt: skip
def test_the_mirror_of_a_path(path: Any, prefix: str | None, found: str) -> None:
    assert mirror_path(path, prefix) == found


@pytest.mark.parametrize(
    ("path", "words"), [("/q/a", "an absolute path has no mirror"), ("/pp/a", "absolute"), (5, "expected a path")]
)
def test_what_has_no_mirror(path: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        mirror_path(path, "/p")


def test_configs_that_cannot_be_filled_in() -> None:
    raw, known = (ExecutorStep(name=name, fn=None, config=None) for name in ("raw", "known"))
    with pytest.raises(NotFound, match=r"the output path of step 'raw' is not known; known steps: known$"):
        instantiate_config([raw], "/o", {known: "/k"}, "/p")
    with pytest.raises(NotFound, match="known steps: none"):
        instantiate_config([raw], "/o", {}, "/p")
    with pytest.raises(InvalidRequest, match="this config is not a step's, so it has no output path"):
        instantiate_config([this_output_path()], None, {}, "/p")
    endless: list[Any] = [this_output_path()]
    endless.append(endless)
    with pytest.raises(InvalidRequest, match="a config of type list contains itself"):
        rebuild(endless, lambda placeholder: 1)


def test_what_concerns_the_step_itself_is_filled_in_and_inputs_stay() -> None:
    raw = ExecutorStep(name="raw", fn=None, config=None)
    config = {
        "o": this_output_path("x"), "v": versioned([versioned(1), this_output_path()]), "m": mirrored(versioned("d")),
        "i": raw, "n": mirrored(raw / "f", budget_gb=3), "p": [1],
    }  # fmt: skip
    found = resolve_local_placeholders(config, "/o")
    assert (found["o"], found["v"], found["m"], found["i"]) == ("/o/x", [1, "/o"], "mirror://d", raw)
    assert found["n"] == mirrored(raw / "f", budget_gb=3)
    assert found["p"] is config["p"]


@dataclasses.dataclass
class Derived:
    x: Any
    length: int = dataclasses.field(init=False)
    note: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.length = len(str(self.x))


@dataclasses.dataclass
class WithInitOnly:
    x: Any
    seed: dataclasses.InitVar[int] = 0

    def __post_init__(self, seed: int) -> None:
        self.made = seed


class Slotted:
    __slots__ = ("x",)


@dataclasses.dataclass
class SlottedConfig(Slotted):
    y: Any = None


def test_what_a_class_derives_is_derived_from_the_real_values() -> None:
    config = Derived(versioned("abc"))
    config.note = versioned(5)
    found = instantiate_config(config, None, {}, "/p")
    assert (found.x, found.length, found.note) == ("abc", 3, 5)
    kept = instantiate_config(WithInitOnly(versioned(1), 7), None, {}, "/p")
    assert (kept.x, kept.made) == (1, 7)
    slotted = SlottedConfig(versioned(2))
    slotted.x = "kept"
    again = instantiate_config(slotted, None, {}, "/p")
    assert (again.x, again.y) == ("kept", 2)


def test_two_steps_of_one_version_and_path_have_one_function(make_step: MakeStep, prefix: str) -> None:
    def executor() -> Executor:
        return Executor(prefix, f"{prefix}/experiments")

    taken = executor()
    taken.compute_version(make_step("n", fn=work))
    taken.compute_version(make_step("n", fn=None))
    with pytest.raises(NotFound, match="step 'other' is not part of this run"):
        taken.canonicalize(make_step("other"))
    assert len(taken.version_strs) == len(list(taken.version_strs)) == 2
    with pytest.raises(KeyError):
        taken.version_strs[make_step("other")]


def test_paths_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "b.txt").write_text("")
    assert fsspec_glob(f"{tmp_path}/*.txt") == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    assert fsspec_glob(f"file://{tmp_path}/a*") == [f"file://{tmp_path}/a.txt"]
    assert fsspec_size(f"{tmp_path}/a.txt") == 3
    with pytest.raises(FileNotFoundError):
        fsspec_size(os.path.join(tmp_path, "none"))
    assert rebase_file_path("/in/", "/in/d/x.jsonl.gz", "/out", ".parquet") == "/out/d/x.jsonl.parquet"
    assert rebase_file_path("/in", "/in/x.jsonl.gz", "/out", ".parquet", ".jsonl.gz") == "/out/x.parquet"
    assert rebase_file_path("/in", "/in/x.gz", "/out") == "/out/x.gz"
    for arguments, words in (
        (("/in", "/inner/x", "/out"), "is not below base_in_path '/in'"),
        (("/in", "/in/x.gz", "/out", None, ".gz"), "needs a new_extension"),
        (("/in", "/in/x.gz", "/out", ".a", ".zip"), "does not end in old_extension '.zip'"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            rebase_file_path(*arguments)
