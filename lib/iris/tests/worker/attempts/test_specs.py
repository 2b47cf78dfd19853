import shutil
from dataclasses import replace
from pathlib import Path

from iris.worker.prepare.task_env import PreparedEnvironment
from iris.worker.types import Launch
from iris.worker.watch.rules import WatchRules

from .conftest import Bench

LAUNCH = Launch("/ann/one", ("true",), env_vars={"A": "1"}, replicas=2, token="t")


async def test_what_attempts_and_jobs_have_in_common_is_held_once_and_what_differs_is_not(bench: Bench) -> None:
    first, second = await bench.handed(0, LAUNCH), await bench.handed(1, LAUNCH)
    other = await bench.handed(0, replace(LAUNCH, job_id="/bob/two", token="u", replicas=1, env_vars={"A": "1"}))
    assert first.given.common is second.given.common is other.given.common
    seen = [command.spec.env for command in (first, second, other)]
    assert [env["IRIS_JOB_ID"] for env in seen] == ["/ann/one", "/ann/one", "/bob/two"]
    assert [env["IRIS_NUM_TASKS"] for env in seen] == ["2", "2", "1"]
    assert [env["IRIS_TASK_INDEX"] for env in seen] == ["0", "1", "0"]
    assert len({env["TMPDIR"] for env in seen}) == len({env["IRIS_ERROR_FILE"] for env in seen}) == 3
    assert {env["A"] for env in seen} == {"1"}
    bench.preparer.known = PreparedEnvironment()
    others = [
        *(replace(LAUNCH, job_id=f"/ann/extra{name}", extras=(name,)) for name in "xy"),
        replace(LAUNCH, job_id="/ann/argv", argv=("false",)),
        replace(LAUNCH, job_id="/ann/env", env_vars={"A": "2"}),
        replace(LAUNCH, job_id="/ann/fence", exclusive=True, fence_after_ms=5),
        replace(LAUNCH, job_id="/ann/device", has_accelerator=True),
    ]
    commands = [first, *[await bench.handed(0, launch) for launch in others]]
    assert len({id(command.given.common) for command in commands}) == 7
    bench.address = "h:2"
    moved = await bench.handed(0, replace(LAUNCH, job_id="/ann/moved"))
    assert moved.given.common is not first.given.common
    assert moved.spec.env["IRIS_CONTROLLER_ADDRESS"] == "h:2"
    last = await bench.handed(2, LAUNCH)
    assert last.given.common is moved.given.common, "the address counts, not only the job"


async def test_a_directory_of_the_worker_that_a_task_has_removed_is_made_again(bench: Bench) -> None:
    await bench.handed()
    shutil.rmtree(bench.paths.slots)
    assert Path((await bench.handed(1)).spec.cwd).is_dir()


async def test_who_is_watched_is_started_by_itself_and_told_where_to_report(bench: Bench) -> None:
    callable_ = Launch("/ann/one", payload_digest="p1", watch=WatchRules(stall_s=9))
    spec = (await bench.handed(0, callable_)).spec
    assert spec.sharer == "", "a fork of a warm interpreter lacks the variables by which it is known"
    assert spec.env["IRIS_PROGRESS_FILE"] == f"{spec.env['TMPDIR']}/.iris-progress"
    assert spec.note["progress"] == spec.env["IRIS_PROGRESS_FILE"], "the next worker process finds it, too"
