"""Run jobs of two users from one host of a cluster: `python -m support.iris.outage_jobs PLAN RESULT`, both JSON."""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from iris.client import IrisClient, Job
from iris.cluster.types import CoschedulingConfig, Entrypoint, ResourceSpec

_SMALL = ResourceSpec(cpu=0.5, memory="16MB", disk="1MB")


def _submit(client: IrisClient, job: dict[str, Any]) -> Job:
    fence: dict[str, Any] = (
        {"exclusive": True, "fence_after": job["fence_after_s"]} if job["kind"] == "exclusive" else {}
    )
    gang: dict[str, Any] = {"replicas": 2, "coscheduling": CoschedulingConfig("slice")} if job["kind"] == "gang" else {}
    return client.submit(Entrypoint.from_command("sh", "-c", job["script"]), job["name"], _SMALL, **fence, **gang)


def _result(client: IrisClient, job: Job, kind: str, wait_s: float) -> dict[str, Any]:
    status = job.wait(timeout=wait_s)
    tasks = [
        {
            "id": task.task_id,
            "attempt": task.attempt,
            "failures": task.failures,
            "causes": task.causes,
            "lines": [(line.attempt, line.note, line.text) for line in client.read_logs(task.task_id)],
        }
        for task in client.list_tasks(job.job_id)
    ]
    return {"id": job.job_id, "kind": kind, "state": status.state.word, "error": status.error, "tasks": tasks}


def _watch(client: IrisClient, heard: list[tuple[float, str, bool]], ended: threading.Event) -> None:
    """Record when the controller loses and regains contact with each worker."""
    before: dict[str, bool] = {}
    while not ended.wait(0.05):  # the shortest silence of a short cut is a fifth of a second
        now = {worker.worker_id: worker.connected for worker in client.cluster_status(all_workers=True).workers}
        heard += [(time.time(), name, is_heard) for name, is_heard in now.items() if before.get(name) != is_heard]
        before = now


def main() -> None:
    """Submit the planned jobs one by one, and write their results and the contact times of workers."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    clients = [IrisClient.remote(plan["address"], token_file=token) for token in plan["tokens"]]
    heard: list[tuple[float, str, bool]] = []
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(clients[0], heard, ended), daemon=True)
    watch.start()
    submitted: list[tuple[IrisClient, Job, str]] = []
    followed: dict[str, list[tuple[int, bool, str]]] = {}  # by task

    def follow() -> None:
        client, job, _ = submitted[0]
        lines = client.read_logs(job.job_id, from_start=True, follow=True)
        for line in lines:
            followed.setdefault(line.task_id, []).append((line.attempt, line.note, line.text))

    follower = threading.Thread(target=follow)
    for number, job in enumerate(plan["jobs"]):
        client = clients[number % len(clients)]
        submitted.append((client, _submit(client, job), job["kind"]))
        if number == 0:
            follower.start()
        time.sleep(plan["every_s"])
    results = [_result(client, job, kind, plan["wait_s"]) for client, job, kind in submitted]
    ended.set()
    watch.join()
    follower.join(plan["wait_s"])
    Path(sys.argv[2]).write_text(json.dumps({"jobs": results, "heard": heard, "followed": followed}))


if __name__ == "__main__":
    main()
