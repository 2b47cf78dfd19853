"""A child that a step's function forks is no part of the run: it speaks for nothing, and ends with its function."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from fray.testing.forks import exit_code_of
from marin.execution import ExecutorStep, this_output_path
from marin.execution.jobs.remote import remote
from marin.execution.lease.status_file import StatusFile, distributed_lock, step_lock
from marin.execution.lease.status_words import STATUS_RUNNING, STATUS_SUCCESS
from rigging.errors import Conflict
from support.marin.steps import MakeExecutor


def status_of(path: str) -> str | None:
    return StatusFile(path).status


def returns() -> str:
    return "child"


def raises() -> None:
    raise LookupError("no shards in the child")


def exits() -> None:
    sys.exit(3)


def forks(in_child: Callable[[], Any]) -> Callable[[str], Any]:
    """A step that forks; it tells how its child ended, and the status and files of its output after that."""

    def step(path: str) -> Any:
        child = os.fork()
        if child == 0:
            return in_child()
        return [exit_code_of(child), status_of(path), os.path.exists(os.path.join(path, ".artifact"))]

    return step


def forks_in_a_loop(path: str) -> Any:
    async def step() -> Any:
        await asyncio.sleep(0)
        return forks(raises)(path)

    return step()


@pytest.mark.parametrize(
    ("fn", "code"),
    [(forks(returns), 0), (forks(raises), 1), (forks(exits), 3), (forks_in_a_loop, 1), (remote(forks(exits)), 3)],
    ids=["returns", "raises", "exits", "in a coroutine", "in a job"],
)
def test_it_writes_nothing_and_ends(fn: Any, code: int, make_executor: MakeExecutor) -> None:
    step = ExecutorStep(name="forks", fn=fn, config=this_output_path())
    with set_current_client(LocalClient()):
        (path,) = make_executor().run([step]).values()
    assert status_of(path) == STATUS_SUCCESS
    assert json.loads(Path(path, ".artifact").read_text()) == [code, STATUS_RUNNING, False]


def test_it_cannot_speak_about_an_output_that_its_parent_has_locked(tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    with step_lock(path) as locked:
        locked.write_status(STATUS_RUNNING)
        child = os.fork()
        if child == 0:
            try:
                locked.write_status(STATUS_SUCCESS)
            except Conflict as error:
                os._exit(7 if f"{path}: its lock is held by process {os.getppid()}" in str(error) else 8)
            finally:
                os._exit(9)
        assert exit_code_of(child) == 7
        assert status_of(path) == STATUS_RUNNING


def test_a_lock_around_a_function_is_the_parents_too(tmp_path: Path) -> None:
    path, seen, test = str(tmp_path / "out"), [], os.getpid()
    try:
        distributed_lock(lambda path: seen.extend(forks(returns)(path)))(path)
    except Conflict:
        os._exit(7)
    finally:
        if os.getpid() != test:
            os._exit(9)
    assert seen == [7, STATUS_RUNNING, False]
    assert status_of(path) == STATUS_SUCCESS
