"""A step is done only when its function has run, and its output is where the run says."""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from marin.execution import Executor, ExecutorStep, compute_output_path, this_output_path, versioned
from marin.execution.jobs.remote import remote
from marin.execution.run.step_runner import run_step
from marin.execution.script.main import ExecutorMainConfig, executor_main
from marin.execution.step_spec import StepSpec
from rigging.errors import InvalidRequest, StepFailed

MakeStep = Callable[..., ExecutorStep[Any]]


def write_there(path: str) -> None:
    Path(path, "there").write_text(os.getcwd())


async def write_there_later(path: str) -> str:
    write_there(path)
    return "kept"


def yields(path: str) -> Iterator[str]:
    write_there(path)
    yield path


async def yields_later(path: str) -> AsyncIterator[str]:
    write_there(path)
    yield path


@pytest.mark.parametrize("prefix", ["relout", "./a/../relout", "~/relout"])
def test_a_relative_prefix_means_the_same_everywhere(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here, there = (
        ExecutorStep(name=name, fn=fn, config=this_output_path())
        for name, fn in [("here", write_there), ("there", remote(write_there))]
    )
    with set_current_client(LocalClient(processes=True)) as client:
        paths = executor_main(ExecutorMainConfig(prefix=prefix), steps=[here, there])
        client.shutdown()
    for path in paths.values():
        assert path.startswith(f"{tmp_path}/relout/"), path
        assert Path(path, "there").exists()
    assert compute_output_path("here", this_output_path(), prefix=prefix) == paths[here]
    monkeypatch.setenv("MARIN_PREFIX", prefix)
    assert compute_output_path("here", this_output_path()) == paths[here]


@pytest.mark.parametrize("prefix", ["", "  "])
def test_an_empty_prefix_is_refused(prefix: str) -> None:
    for use in (
        lambda: executor_main(ExecutorMainConfig(prefix=prefix), steps=[]),
        lambda: Executor(prefix, "/x"),
        lambda: compute_output_path("n", None, prefix=prefix),
    ):
        with pytest.raises(InvalidRequest, match=rf"prefix='{prefix}': empty; give a path or a URL"):
            use()


def test_urls_and_absolute_prefixes_stay_as_written() -> None:
    for prefix in ("gs://b/x", "mirror://x", "/p/", "s3://b", "simplecache::gs://b"):
        assert Executor(prefix, "/x").prefix == prefix


@pytest.mark.parametrize("wrap", [lambda fn: fn, remote, functools.partial], ids=["plain", "remote", "partial"])
def test_coroutines_run_to_their_end(wrap: Any, make_executor: Callable[[], Executor]) -> None:
    step = ExecutorStep(name="n", fn=wrap(write_there_later), config=this_output_path())
    with set_current_client(LocalClient()):
        (path,) = make_executor().run([step]).values()
    assert Path(path, "there").exists()
    assert Path(path, ".artifact").read_text() == '"kept"'


def test_a_remote_coroutine_that_is_called_runs(tmp_path: Path) -> None:
    with set_current_client(LocalClient()):
        remote(write_there_later)(str(tmp_path))
    assert (tmp_path / "there").exists()


@pytest.mark.parametrize("fn", [yields, yields_later, remote(yields), functools.partial(yields)])
def test_generator_functions_are_refused_before_anything_runs(
    fn: Any, make_step: MakeStep, make_executor: Callable[[], Executor], prefix: str
) -> None:
    first = ExecutorStep(name="first", fn=write_there, config=this_output_path())
    step = ExecutorStep(name="bad", fn=fn, config={"path": this_output_path(), "x": versioned(1), "first": first})
    with pytest.raises(InvalidRequest, match=r"step 'bad': yields(_later)? is a generator function"):
        make_executor().run([step])
    assert not os.path.exists(f"{prefix}/first")


def test_a_generator_that_comes_out_of_a_function_fails_the_step(make_executor: Callable[[], Executor]) -> None:
    step = ExecutorStep(name="bad", fn=lambda path: yields(path), config=this_output_path())
    with pytest.raises(StepFailed, match=r"is a generator function: calling it runs none of its code"):
        make_executor().run([step])
    spec = StepSpec("bad", fn=yields, output_path_prefix=make_executor().prefix)
    with pytest.raises(InvalidRequest, match=r"yields is a generator function"):
        run_step(spec)
