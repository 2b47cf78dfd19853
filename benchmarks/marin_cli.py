"""Duration of `marin runs` over 10,000 recorded runs.

usage: uv run --group dev python benchmarks/marin_cli.py

Prints one JSON line: medians of 5 in seconds, with `python -c pass` in the same run for comparison.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MARIN = str(Path(sys.executable).with_name("marin"))
RUNS = 10_000
STEPS = 10
REPEATS = 5


def record_runs(directory: Path) -> None:
    """Write the files of `count` runs with ten different steps each."""
    directory.mkdir()
    steps = [{"name": f"step{number}", "output_path": f"/p/step{number}-000000"} for number in range(STEPS)]
    for number in range(RUNS):
        stem = f"train-{number:06x}"
        head = {"worker_id": "host-7-8", "git_commit": "c0ffee", "created_date": "2023-11-14", "user": "ada"}
        (directory / f"{stem}.json").write_text(json.dumps({**head, "description": None, "steps": steps}, indent=2))
        events: list[dict[str, object]] = [{"event": "run_started", "time": 1.0, "steps": STEPS, "host": "h"}]
        for step in steps:
            common = {"time": 1.0, "name": step["name"], "path": step["output_path"]}
            events.append({"event": "step_queued", **common})
            events.append({"event": "step_ended", **common, "status": "succeeded", "seconds": 1.0, "error": None})
        events.append({"event": "run_ended", "time": 2.0, "seconds": 1.0, "error": None, "ends": {"succeeded": STEPS}})
        name = f"{stem}-20231114T010000.{number:06}Z-7.events.jsonl"
        (directory / name).write_text("".join(json.dumps(event) + "\n" for event in events))


def median(*command: str) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    return round(statistics.median(times), 3)


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        os.environ["MARIN_PREFIX"] = root
        record_runs(Path(root) / "experiments")
        line: dict[str, object] = {"bench": "marin-cli", "runs": RUNS}
        line["python_pass_s"] = median(sys.executable, "-c", "pass")
        line["help_s"] = median(MARIN, "--help")
        line["newest_50_s"] = median(MARIN, "runs")
        line["all_s"] = median(MARIN, "runs", "--all")
        line["all_json_s"] = median(MARIN, "runs", "--all", "--json")
        print(json.dumps(line))


if __name__ == "__main__":
    main()
