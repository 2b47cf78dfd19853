"""Jobs of fray and of submitit on one Slurm, in alternating turns of one run.

usage: uv run --group dev python benchmarks/slurm.py [--peer-python FILE] [--turns N] [CASE]...

CASE is `one:N` (N jobs, one after the other: medians from the call to its return, and to the result), `array:N` (one
map of N items as an array: until it is submitted, and until the last result) or `gang:N` (a program on each of N nodes,
which are all on this machine: until `submit` returns, until all replicas have ended, and from `terminate` to the end of
a running gang; this side only). Each job returns a number. FILE is the interpreter of an environment with submitit;
without it only this side is measured. Needs what the tests on Slurm need:
root, and Debian's packages or an installed slurmctld. Prints one JSON line per case: medians over the turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fray
from fray import Entrypoint, EnvironmentConfig, JobRequest, ResourceConfig
from fray.backends.slurm import SlurmClient
from fray.backends.slurm.address import SlurmAddress
from support.slurm.cluster import CPUS, SlurmCluster, running_slurm

PEER = Path(__file__).with_name("peers") / "submitit_jobs.py"
DEFAULT_CASES = ("one:5", "array:100", "array:1000")
SMALL = ResourceConfig.with_cpu(cpu=1, ram="64m")


def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


def one_turn(folder: str, case: str, count: int) -> dict[str, float]:
    environment = EnvironmentConfig(workspace=folder)
    with SlurmClient(SlurmAddress("main", directory=Path(folder))) as client:

        def submit(name: str, number: int) -> fray.JobHandle[int]:
            entrypoint = Entrypoint.from_callable(double, [number])
            return client.submit(JobRequest(name, entrypoint, SMALL, environment))

        submit(f"first-{os.urandom(4).hex()}", 0).result()  # uncounted: imports
        if case == "array":
            began = time.perf_counter()
            results = fray.map(
                double, range(count), max_in_flight=count, resources=SMALL, environment=environment, client=client
            )
            first = next(results)
            assert [first, *results] == [2 * item for item in range(count)]
            return {"result_s": time.perf_counter() - began}
        submits, ends = [], []
        for number in range(count):
            began = time.perf_counter()
            job = submit(f"job-{os.urandom(4).hex()}", number)
            submits.append(time.perf_counter() - began)
            assert job.result() == 2 * number
            ends.append(time.perf_counter() - began)
        return {"submit_s": statistics.median(submits), "result_s": statistics.median(ends)}


def gang_turn(folder: str, count: int) -> dict[str, float]:
    needs = ResourceConfig.with_cpu(cpu=CPUS, ram="64m", replicas=count)
    with SlurmClient(SlurmAddress("main", directory=Path(folder))) as client:

        def submit(script: str) -> fray.JobHandle[None]:
            entrypoint = Entrypoint.from_binary("sh", ["-c", script])
            return client.submit(JobRequest(f"gang-{os.urandom(4).hex()}", entrypoint, needs))

        began = time.perf_counter()
        job = submit("true")
        submitted = time.perf_counter() - began
        job.wait()
        ended = time.perf_counter() - began
        job = submit("echo begun; exec sleep 1000")
        while job.logs().count("begun") < count:
            time.sleep(0.05)
        began = time.perf_counter()
        job.terminate()
        job.wait(raise_on_failure=False)
        return {"submit_s": submitted, "end_s": ended, "cancel_s": time.perf_counter() - began}


def peer_turn(python: str, folder: str, case: str, count: int) -> dict[str, float]:
    command = [python, str(PEER), folder, case, str(count)]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(cluster: SlurmCluster, case: str, turns: int, python: str | None) -> dict[str, float | str]:
    kind, _, count = case.partition(":")
    sides: dict[str, Callable[[str], dict[str, float]]] = {"fray": lambda folder: one_turn(folder, kind, int(count))}
    if kind == "gang":
        sides["fray"] = lambda folder: gang_turn(folder, int(count))
    elif python is not None:
        sides["submitit"] = lambda folder: peer_turn(python, folder, kind, int(count))
    figures: dict[str, list[float]] = {}
    for _ in range(turns):
        for side, turn in sides.items():
            with tempfile.TemporaryDirectory(prefix="slurm-bench-") as folder:
                for name, value in turn(folder).items():
                    figures.setdefault(f"{side}_{name}", []).append(value)
    cluster.run("scancel", "--me")
    return {"case": case, **{name: round(statistics.median(values), 3) for name, values in figures.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=DEFAULT_CASES)
    parser.add_argument("--peer-python")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    for case in options.cases:
        kind, _, count = case.partition(":")
        with running_slurm(int(count) if kind == "gang" else 1) as cluster:
            print(json.dumps(run(cluster, case, options.turns, options.peer_python)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
