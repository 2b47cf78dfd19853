"""Duration of whole commands: help, a job on a warm cluster, a cold start, a cached experiment; and memory.

usage: uv run --group dev python benchmarks/iris_cli.py

Prints one JSON line: medians of 5 in seconds, this machine's floor in the same run (`python -c pass` and an interpreter
that only imports grpc), and the controller's resident memory in MiB after start and after the run.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

IRIS = str(Path(sys.executable).with_name("iris"))
REPOSITORY = Path(__file__).resolve().parents[1]
REPEATS = 5


def seconds(*command: str) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY)
    return time.perf_counter() - begin


def median(*command: str) -> float:
    return round(statistics.median(seconds(*command) for _ in range(REPEATS)), 3)


def cold_start() -> float:
    times = []
    for _ in range(3):
        subprocess.run([IRIS, "cluster", "stop", "--force"], capture_output=True, check=False)
        times.append(seconds(IRIS, "cluster", "start", "--local"))
    return round(statistics.median(times), 3)


def controller_memory() -> float:
    state = json.loads((Path(os.environ["IRIS_STATE_DIR"]) / "cluster.json").read_text())
    return round(psutil.Process(state["pid"]).memory_info().rss / 2**20, 1)


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        os.environ["IRIS_STATE_DIR"] = f"{root}/iris"
        os.environ["MARIN_PREFIX"] = f"{root}/marin"
        try:
            line: dict[str, object] = {"bench": "iris-cli"}
            line["python_pass_s"] = median(sys.executable, "-c", "pass")
            line["import_grpc_s"] = median(sys.executable, "-c", "import grpc")
            line["help_s"] = median(IRIS, "--help")
            line["cold_start_s"] = cold_start()
            line["controller_idle_mib"] = controller_memory()
            seconds(IRIS, "job", "run", "--", "true")
            line["job_run_true_s"] = median(IRIS, "job", "run", "--", "true")
            hello = (IRIS, "job", "run", "--", "python", "-m", "experiments.hello_world")
            line["hello_world_first_s"] = round(seconds(*hello), 3)
            line["hello_world_cached_s"] = median(*hello)
            line["controller_after_mib"] = controller_memory()
            print(json.dumps(line))
        finally:
            subprocess.run([IRIS, "cluster", "stop", "--force"], capture_output=True, check=False)


if __name__ == "__main__":
    main()
