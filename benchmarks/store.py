"""The controller's store: commits under load, a restart with a million tasks, one large submission.

usage: uv run --group dev python benchmarks/store.py [--tasks N] [--tasks-per-job N]

    events      AttemptObserved events (running, succeeded), reduced, applied and committed in batches of 500: events/s
    restart     a database of N tasks (1,000,000 unless told), 1 in 100 of them in live jobs: seconds from opening it to
                the end of the first scheduling round in a fresh process, and that process's peak memory
    submit      one job of 10,000 tasks through the engine, committed: seconds

Prints one JSON line. Each figure is the best of 3 runs, because other work on the machine only adds time.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from iris.controller.engine.engine import Engine
from iris.controller.engine.transaction import Transaction
from iris.core.state.batch import Batch
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.entities import Job, Task
from iris.domain.events import AttemptObserved, JobSubmitted, WorkerConnected
from iris.domain.ids import JobId, WorkerId, task_id
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import JobState, TaskState
from iris.store.store import Store

REPEATS = 3
BATCH = 500
LIVE_SHARE = 100  # one job in so many lives
NEED = Resources(cpu_millis=100, memory_bytes=2**20)
HOST = Resources(cpu_millis=2_000_000, memory_bytes=2**50, disk_bytes=2**50)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def fail(error: Exception) -> None:
    raise error


def events(state_dir: Path, task_count: int = 20_000) -> tuple[float, float]:
    """Return events per second, and per CPU second: every task reports running and success."""

    async def main() -> tuple[float, float]:
        store = Store.open(state_dir)
        view = ClusterView.load((), (), (), store)
        engine = Engine(view, store, now_ms, fail)
        await engine.submit(WorkerConnected(WorkerId("w"), "one", HOST))
        spec = JobSpec(JobId("/ann/many"), CommandEntrypoint(("true",)), NEED, replicas=task_count)
        await engine.submit(JobSubmitted(spec))
        names = [task.attempt_id for task in view.tasks[spec.job_id]]
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for state in (TaskState.RUNNING, TaskState.SUCCEEDED):
            for start in range(0, task_count, BATCH):
                for name in names[start : start + BATCH - 1]:
                    engine.post(AttemptObserved(name, WorkerId("w"), state, at_ms=now_ms()))
                last = names[min(start + BATCH, task_count) - 1]
                # Waiting for the last of a batch waits for its commit.
                await engine.submit(AttemptObserved(last, WorkerId("w"), state, at_ms=now_ms()))
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
        assert view.jobs[spec.job_id].state is JobState.SUCCEEDED
        engine.close()
        store.close()
        return 2 * task_count / seconds, 2 * task_count / cpu_seconds

    return asyncio.run(main())


def fill(state_dir: Path, task_count: int, tasks_per_job: int) -> None:
    """Write the database of a busy cluster."""
    store = Store.open(state_dir)
    turn_workers = ClusterView()
    turn = Transaction(turn_workers, now_ms(), Batch())
    turn.apply(WorkerConnected(WorkerId("w"), "one", HOST))
    store.commit(turn.batch.changes)
    jobs: list[Job] = []
    tasks: list[Task] = []
    for number in range(task_count // tasks_per_job):
        live = number % LIVE_SHARE == 0
        job_id = JobId(f"/user{number % 50}/job-{number}")
        spec = JobSpec(
            job_id,
            CommandEntrypoint(("python", "-m", "experiments.train", "--seed", str(number))),
            NEED,
            env_vars={"MARIN_PREFIX": "gs://bucket/prefix", "RUN": f"run-{number}"},
            bundle_digest=f"{number % 1000:064x}",
            replicas=tasks_per_job,
        )
        state = TaskState.PENDING if live else TaskState.SUCCEEDED
        counts = tuple(tasks_per_job if number == state else 0 for number in range(max(TaskState) + 1))
        jobs.append(
            Job(
                spec,
                JobState.PENDING if live else JobState.SUCCEEDED,
                1_700_000_000_000 + number,
                0 if live else 1_700_000_000_001 + number,
                0 if live else 1_700_000_000_002 + number,
                sequence=number + 1,
                idempotency_key=f"key-{number}",
                task_counts=counts,
            )
        )
        for index in range(tasks_per_job):
            task = Task(task_id(job_id, index), job_id, index, state)
            if not live:
                times = (1_700_000_000_001, 1_700_000_000_002)
                task = Task(task.task_id, job_id, index, state, 0, WorkerId("w"), 0, 0, 0, 0, "", *times)
            tasks.append(task)
        if len(tasks) >= 50_000:
            store.commit(Changes.of(jobs, tasks))
            jobs, tasks = [], []
    store.commit(Changes.of(jobs, tasks))
    store.close()


def restart(state_dir: Path) -> dict[str, float]:
    """Open, load and schedule in a fresh process, like a starting controller."""
    command = [sys.executable, __file__, "--restart", str(state_dir)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def restart_here(state_dir: Path) -> dict[str, float]:
    async def main() -> dict[str, float]:
        begin = time.perf_counter()
        store = Store.open(state_dir)
        stored = store.load(lean=True)
        view = ClusterView.load(stored.jobs, stored.tasks, stored.workers, store)
        del stored
        engine = Engine(view, store, now_ms, fail)
        await engine.submit(WorkerConnected(WorkerId("w"), "two", HOST))
        seconds = time.perf_counter() - begin
        assert view.bookings, "nothing was scheduled"
        engine.close()
        store.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"seconds": round(seconds, 2), "peak_mb": round(peak)}

    return asyncio.run(main())


def submit(state_dir: Path, task_count: int = 10_000) -> float:
    async def main() -> float:
        store = Store.open(state_dir)
        engine = Engine(ClusterView.load((), (), (), store), store, now_ms, fail)
        spec = JobSpec(JobId("/ann/large"), CommandEntrypoint(("true",)), NEED, replicas=task_count)
        begin = time.perf_counter()
        await engine.submit(JobSubmitted(spec))
        seconds = time.perf_counter() - begin
        engine.close()
        store.close()
        return seconds

    return asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--tasks-per-job", type=int, default=10)
    parser.add_argument("--restart", metavar="STATE_DIR", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.restart:
        print(json.dumps(restart_here(Path(arguments.restart))))
        return
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        rate, cpu_rate = max(events(root / f"events-{number}") for number in range(REPEATS))
        large = min(submit(root / f"submit-{number}") for number in range(REPEATS))
        fill(root / "full", arguments.tasks, arguments.tasks_per_job)
        restarts = [restart(root / "full") for _ in range(REPEATS)]
        best = min(restarts, key=lambda found: found["seconds"])
    line = {
        "bench": "iris-store",
        "events_per_s": round(rate),
        "events_per_cpu_s": round(cpu_rate),
        "submit_10000_tasks_s": round(large, 3),
        "restart": {"tasks": arguments.tasks, "tasks_per_job": arguments.tasks_per_job, **best},
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
