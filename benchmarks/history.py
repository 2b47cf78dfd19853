"""A controller that remembers many ended jobs: its start, its memory, and what others notice of one who lists.

usage: uv run --group dev python benchmarks/history.py [--jobs N] [--users N] [--seconds S] [--real N]

    restart    from the start of a process to its first answer, with N (1,000,000) ended jobs of 100 users: seconds
    memory     of that process after the start, and after the lists: MB
    list       the newest 200 jobs of all users, and of one: ms, median
    others     GetJob of one job every 5 ms for S (20) seconds, alone and while somebody else lists: ms, median and p99
    disk       bytes on disk of each of N (2,000) jobs that ran `echo` twice on a local cluster, once logs are moved

Prints one JSON line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from iris.controller.config.controller_config import Address
from iris.controller.logs.store import LogStore
from iris.core.state.changes import Changes
from iris.domain.entities import Job, Task
from iris.domain.ids import JobId, WorkerId, task_id
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import JobState, TaskState
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from iris.store.log_shelf import LogShelf
from iris.store.store import Store
from support.iris.controller import ControllerStubs
from support.iris.controller_process import ControllerProcess

NEED = Resources(cpu_millis=100, memory_bytes=2**20)
LISTED = 200
EVERY_S = 0.005
BATCH = 20_000


def fill(state_dir: Path, count: int, users: int) -> None:
    """Write ended jobs of one task, as a busy day leaves them."""
    store, now_ms = Store.open(state_dir), time.time_ns() // 1_000_000
    counts = tuple(int(number == TaskState.SUCCEEDED) for number in range(max(TaskState) + 1))
    jobs: list[Job] = []
    for number in range(count):
        command = CommandEntrypoint(("python", "-m", "experiments.evaluate", "--shard", str(number)))
        name = JobId(f"/user{number % users}/evaluate-{number}")
        env = {"MARIN_PREFIX": "gs://bucket/prefix"}
        spec = JobSpec(name, command, NEED, env_vars=env, bundle_digest=f"{number % 1000:064x}")
        at_ms = now_ms - 600_000 + number % 600_000
        times = (at_ms, at_ms + 1, at_ms + 2)
        key = f"key-{number}"
        jobs.append(Job(spec, JobState.SUCCEEDED, *times, sequence=number + 1, idempotency_key=key, task_counts=counts))
        if len(jobs) == BATCH or number == count - 1:
            tasks = [
                Task(task_id(job.job_id, 0), job.job_id, 0, TaskState.SUCCEEDED, 0, WorkerId("w"), 0, 0, 0, 0, "",
                     job.started_at_ms, job.finished_at_ms)
                for job in jobs
            ]  # fmt: skip
            store.commit(Changes.of(jobs, tasks))
            jobs = []
    store.close()


def megabytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median_ms": round(statistics.median(ordered), 2), "p99_ms": round(ordered[int(len(ordered) * 0.99)], 2)}


def asked(stubs: ControllerStubs, name: str, seconds: float) -> dict[str, float]:
    """Ask for one job again and again, like a client that waits."""
    times, end = [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        stubs.jobs.GetJob(pb.GetJobRequest(job_id=name))
        times.append((time.perf_counter() - begin) * 1000)
        time.sleep(EVERY_S)
    return spread(times)


def listed(stubs: ControllerStubs, prefix: str, repeats: int = 20) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        assert len(stubs.jobs.ListJobs(pb.ListJobsRequest(prefix=prefix, limit=LISTED)).jobs) == LISTED
        times.append((time.perf_counter() - begin) * 1000)
    return round(statistics.median(times), 1)


def remembered(state_dir: Path, seconds: float) -> dict[str, Any]:
    """Start a controller on the filled directory, and measure it."""
    secret = load_or_create_secret(state_dir / "secret")
    metadata = call_metadata(make_token(secret, PrincipalKind.ADMIN, "root"))
    begin = time.perf_counter()
    controller = ControllerProcess(state_dir)
    try:
        address: Address = controller.address
        stubs, other = ControllerStubs(address, metadata), ControllerStubs(address, metadata)
        name = "/user7/evaluate-7"
        stubs.jobs.GetJob(pb.GetJobRequest(job_id=name))
        found: dict[str, Any] = {"restart_s": round(time.perf_counter() - begin, 2)}
        found["memory_mb"] = megabytes(controller.pid)
        found["list_ms"] = {"all": listed(stubs, ""), "one_user": listed(stubs, "/user7")}
        found["others_alone"] = asked(stubs, name, seconds)
        lists_on = True

        def lists() -> None:
            while lists_on:
                listed(other, "", 1)

        lister = threading.Thread(target=lists)
        lister.start()
        found["others_while_one_lists"] = asked(stubs, name, seconds)
        lists_on = False
        lister.join()
        found["memory_after_lists_mb"] = megabytes(controller.pid)
        return found
    finally:
        controller.kill()


def disk(count: int) -> int:
    """Return the bytes on disk of one small job that printed two lines."""
    with tempfile.TemporaryDirectory() as state_dir:
        os.environ["IRIS_STATE_DIR"] = state_dir
        from iris.client import IrisClient
        from iris.cluster.types import Entrypoint, ResourceSpec

        client = IrisClient.local()
        resources = ResourceSpec(cpu=1, memory="64MB", disk="1MB")
        command = Entrypoint.from_command("sh", "-c", "echo hello; echo world")
        try:
            client.submit(command, "warm-up", resources).wait(timeout=60)
            before = _size(state_dir)
            jobs = [client.submit(command, f"job-{number}", resources) for number in range(count)]
            client.wait_jobs(jobs, timeout=600)
        finally:
            client.shutdown()
            stop = [str(Path(sys.executable).with_name("iris")), "cluster", "stop", "--force"]
            subprocess.run(stop, check=False, capture_output=True)
        _shelve_logs(Path(state_dir))
        return (_size(state_dir) - before) // count


def _shelve_logs(state_dir: Path) -> None:
    """Move small logs to their shelf, like a controller ten minutes later."""
    shelf = LogShelf(state_dir / "small-logs.db")
    logs = LogStore(state_dir / "logs", shelf=shelf)
    files = {JobId(name): found for name in list(logs.stored_jobs()) if (found := logs.small_files(name))}
    shelf.put(files)
    for name, content in files.items():
        logs.drop_shelved(name, content)


def _size(folder: str) -> int:
    """Return the bytes that a folder takes, without the worker and what SQLite has yet to move."""
    found = subprocess.run(
        ["du", "-s", "-B1", "--exclude=worker", "--exclude=*-wal", folder], capture_output=True, text=True, check=True
    )
    return int(found.stdout.split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--real", type=int, default=2000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), arguments.jobs, arguments.users)
        found = remembered(Path(name), arguments.seconds)
    found["disk_bytes_a_job"] = disk(arguments.real)
    print(json.dumps({"bench": "iris-history", "jobs": arguments.jobs, **found}))


if __name__ == "__main__":
    main()
