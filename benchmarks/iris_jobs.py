"""Jobs that are processes, on a warm local cluster, compared with HyperQueue in the same run.

usage: uv run --group dev python benchmarks/iris_jobs.py [one] [separate N] [array N] [--no-peer]

    one        10 x 5 `/bin/true` jobs, one after the other: submit to known-succeeded, p50 and p90 in ms
    separate   N one-task jobs submitted one by one by one client, then waited for: jobs/s (median of 3)
    array      one job of N tasks: tasks/s (median of 3)

Prints one JSON line per measurement. `uv run --with hyperqueue` fetches HyperQueue into a separate environment.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEER = Path(__file__).with_name("peers") / "hyperqueue_jobs.py"
REPEATS = 3


def ours_one(client, job_count: int = 50) -> dict[str, float]:
    times = []
    for index in range(job_count):
        begin = time.perf_counter()
        true_job(client, f"one-{index}").wait(timeout=60)
        times.append((time.perf_counter() - begin) * 1e3)
    return {"p50_ms": round(statistics.median(times), 2), "p90_ms": round(statistics.quantiles(times, n=10)[8], 2)}


def true_job(client, name: str, replicas: int = 1):
    from iris.cluster.types import Entrypoint, ResourceSpec

    resources = ResourceSpec(cpu=1, memory="64MB", disk="1MB")
    return client.submit(
        Entrypoint.from_command("/bin/true"), f"{name}-{os.urandom(4).hex()}", resources, replicas=replicas
    )


def ours_separate(client, count: int) -> dict[str, float]:
    def once() -> float:
        begin = time.perf_counter()
        client.wait_jobs([true_job(client, "separate") for _ in range(count)], timeout=120)
        return time.perf_counter() - begin

    return rate(count, [once() for _ in range(REPEATS)])


def ours_array(client, count: int) -> dict[str, float]:
    def once() -> float:
        begin = time.perf_counter()
        true_job(client, "array", replicas=count).wait(timeout=120)
        return time.perf_counter() - begin

    return rate(count, [once() for _ in range(REPEATS)])


def rate(count: int, seconds: list[float]) -> dict[str, float]:
    median = statistics.median(seconds)
    return {"seconds": round(median, 3), "per_s": round(count / median, 1)}


def peer(mode: str, count: int | None) -> dict[str, float] | None:
    words = [mode] if count is None else [mode, str(count)]
    command = ["uv", "run", "--quiet", "--no-project", "--with", "hyperqueue", "python", str(PEER), *words]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        print(f"the peer failed: {done.stderr[-500:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    words = [w for w in sys.argv[1:] if w != "--no-peer"] or ["one", "separate", "500", "array", "2000"]
    with tempfile.TemporaryDirectory() as state_dir:
        os.environ["IRIS_STATE_DIR"] = state_dir
        from iris.client import IrisClient

        client = IrisClient.local()
        true_job(client, "warm-up").wait(timeout=60)
        try:
            while words:
                mode = words.pop(0)
                count = int(words.pop(0)) if mode != "one" else None
                run = {"one": ours_one, "separate": ours_separate, "array": ours_array}[mode]
                ours = run(client) if count is None else run(client, count)
                theirs = None if "--no-peer" in sys.argv else peer(mode, count)
                line = {"bench": f"iris-{mode}", "n": count, "iris": ours, "hyperqueue": theirs}
                if theirs:
                    key = "p50_ms" if mode == "one" else "per_s"
                    line["ratio"] = round(ours[key] / theirs[key], 2)
                print(json.dumps(line), flush=True)
        finally:
            client.shutdown()
            subprocess.run([str(Path(sys.executable).with_name("iris")), "cluster", "stop", "--force"], check=False)


if __name__ == "__main__":
    main()
