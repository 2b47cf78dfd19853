"""Processor time per job, and the job rate compared with HyperQueue's, in alternating turns of one run.

usage: uv run --group dev python benchmarks/jobs_vs_hyperqueue.py [--peer-python FILE] [--peer FILE] [--turns] [CASE]...

CASE is `separate:N` (N one-task jobs, submitted one by one, then waited for), `each:N` (the same with a `Job.wait` for
each), `many:N` (the same by one `submit_many`), or `array:N` (one job of N tasks). Each job runs `/bin/true`. PYTHON is
the interpreter of an environment with PyPI's `hyperqueue`; without it only this side is measured. Prints one JSON line
per case: medians over the turns, processor time from /proc (controller, worker, guardian, their ended children, this
client).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processor_time import Meter

PEER = Path(__file__).with_name("peers") / "hyperqueue_jobs.py"
DEFAULT_CASES = ("separate:500", "array:2000")


def run_case(client, case: str, count: int) -> None:
    from iris.cluster.types import Entrypoint, ResourceSpec

    entrypoint = Entrypoint.from_command("/bin/true")
    resources = ResourceSpec(cpu=1, memory="64MB", disk="1MB")
    tag = os.urandom(4).hex()
    if case == "array":
        client.submit(entrypoint, f"array-{tag}", resources, replicas=count).wait(timeout=300)
        return
    names = [f"{case}-{tag}-{index}" for index in range(count)]
    if case == "many":
        from iris.client import JobPlan

        jobs = client.submit_many([JobPlan(entrypoint, name, resources=resources) for name in names])
    else:
        jobs = [client.submit(entrypoint, name, resources) for name in names]
    if case == "each":
        for job in jobs:
            job.wait(timeout=300)
    else:
        client.wait_jobs(jobs, timeout=300)


def one_turn(client, case: str, count: int, state_dir: str) -> dict[str, float]:
    meter = Meter(state_dir)
    begin = time.perf_counter()
    run_case(client, case, count)
    seconds = time.perf_counter() - begin
    return {"per_s": round(count / seconds, 1), **meter.per_item(count)}


def peer_rate(options: argparse.Namespace, case: str, count: int) -> float:
    mode = "array" if case == "array" else "separate"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [options.peer_python, str(options.peer), mode, str(count)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if done.returncode != 0:
        raise SystemExit(f"the peer failed: {done.stderr[-800:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["per_s"])


def measure(client, options: argparse.Namespace, case: str, count: int, state_dir: str) -> dict[str, object]:
    ours: list[dict[str, float]] = []
    theirs: list[float] = []
    for _ in range(options.turns):
        if options.peer_python:
            theirs.append(peer_rate(options, case, count))
        ours.append(one_turn(client, case, count, state_dir))
    line: dict[str, object] = {"case": case, "n": count, "turns": options.turns}
    line |= {key: round(statistics.median(turn[key] for turn in ours), 3) for key in ours[0]}
    if theirs:
        line["hyperqueue_per_s"] = round(statistics.median(theirs), 1)
        line["ratio"] = round(statistics.median(turn["per_s"] for turn in ours) / statistics.median(theirs), 2)
        line["turns_per_s"] = [[turn["per_s"], other] for turn, other in zip(ours, theirs, strict=True)]
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python")
    parser.add_argument("--peer", type=Path, default=PEER)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="iris-speed-") as state_dir:
        os.environ["IRIS_STATE_DIR"] = state_dir
        from iris.client import IrisClient

        client = IrisClient.local()
        try:
            run_case(client, "separate", 20)
            for item in options.cases or DEFAULT_CASES:
                case, _, count = item.partition(":")
                print(json.dumps(measure(client, options, case, int(count), state_dir)), flush=True)
        finally:
            client.shutdown()
            subprocess.run([str(Path(sys.executable).with_name("iris")), "cluster", "stop", "--force"], check=False)


if __name__ == "__main__":
    main()
