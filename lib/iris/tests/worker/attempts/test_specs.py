"""What attempts have in common is one object, so that the guardian is told it once; what they have not is their own."""

import shutil
from dataclasses import replace
from pathlib import Path

from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.directories import AttemptDirectories
from iris.worker.attempts.ports import PortChooser
from iris.worker.attempts.specs import SpecMaker
from iris.worker.attempts.tokens import TokenFiles
from iris.worker.isolation.plan import IsolationMode
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import TaskEnvironment
from iris.worker.processes import ProcessSpec
from iris.worker.types import Launch, StartRequest
from iris.worker.watch.rules import WatchRules

LAUNCH = Launch("/ann/one", ("true",), env_vars={"A": "1"}, replicas=2, token="t")


class Bench:
    def __init__(self, root: Path) -> None:
        paths = WorkPaths(root)
        paths.make()
        self.address = "h:1"
        self.directories = AttemptDirectories(paths, IsolationMode.OVERLAY, lambda work: work())
        self.maker = SpecMaker(
            paths, self.directories, TaskEnvironment(paths, "w", {"PATH": "/bin"}), TokenFiles(paths),
            lambda: self.address, 0, PortChooser(),
        )  # fmt: skip

    def spec(self, launch: Launch, index: int = 0) -> ProcessSpec:
        task = f"{launch.job_id}/{index}"
        request = StartRequest(f"{task}:0", task, index, launch)
        return self.maker.make(Attempt(request, f"/logs/{index}", None))  # type: ignore[arg-type]


def test_what_attempts_and_jobs_have_in_common_is_held_once_and_what_differs_is_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first, second = bench.spec(LAUNCH, 0), bench.spec(LAUNCH, 1)
    other = bench.spec(replace(LAUNCH, job_id="/bob/two", token="u", replicas=1, env_vars={"A": "1"}))
    assert first.common is second.common is other.common
    seen = [spec.whole().env for spec in (first, second, other)]
    assert [env["IRIS_JOB_ID"] for env in seen] == ["/ann/one", "/ann/one", "/bob/two"]
    assert [env["IRIS_NUM_TASKS"] for env in seen] == ["2", "2", "1"]
    assert [env["IRIS_TASK_INDEX"] for env in seen] == ["0", "1", "0"]
    assert len({env["TMPDIR"] for env in seen}) == len({env["IRIS_ERROR_FILE"] for env in seen}) == 3
    assert {env["A"] for env in seen} == {"1"}
    others = [
        replace(LAUNCH, job_id="/ann/argv", argv=("false",)),
        replace(LAUNCH, job_id="/ann/env", env_vars={"A": "2"}),
        replace(LAUNCH, job_id="/ann/extras", extras=("x",)),
        replace(LAUNCH, job_id="/ann/fence", exclusive=True, fence_after_ms=5),
        replace(LAUNCH, job_id="/ann/device", has_accelerator=True),
    ]
    commons = {id(spec.common) for spec in (first, *map(bench.spec, others))}
    assert len(commons) == 6
    bench.address = "h:2"
    moved = bench.spec(replace(LAUNCH, job_id="/ann/moved"))
    assert moved.common is not first.common
    assert moved.whole().env["IRIS_CONTROLLER_ADDRESS"] == "h:2"
    assert bench.spec(LAUNCH, 1).common is moved.common, "the address counts, not only the job"


def test_a_directory_of_the_worker_that_a_task_has_removed_is_made_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.spec(LAUNCH)
    shutil.rmtree(tmp_path / "slots")
    assert Path(bench.spec(LAUNCH, 1).cwd).is_dir()


def test_who_is_watched_is_started_by_itself_and_told_where_to_report(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    callable_ = replace(LAUNCH, argv=(), payload_digest="p1")
    assert bench.spec(callable_).whole().sharer == "ann"
    spec = bench.spec(replace(callable_, watch=WatchRules(stall_s=9)), 1).whole()
    assert spec.sharer == "", "a fork of a warm interpreter lacks the variables by which it is known"
    assert spec.env["IRIS_PROGRESS_FILE"] == f"{spec.env['TMPDIR']}/.iris-progress"
    assert spec.note["progress"] == spec.env["IRIS_PROGRESS_FILE"], "the next worker process finds it, too"
