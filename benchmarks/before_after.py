"""Compare the processor time of benchmarks in two checkouts of this repository, run alternately.

usage: uv run --group dev python benchmarks/before_after.py BEFORE AFTER [--turns 3] [CASE]...

Each case is a benchmark with arguments that make it short. The figure is the processor time (user and system, seconds)
of all processes that it starts, including daemons: the minimum of the turns, which is disturbed least. Each checkout
needs its environment (`uv sync`). Prints one JSON line per case.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = {
    "executor wide": ["executor.py", "wide", "--no-peer"],
    "executor chain": ["executor.py", "chain", "--no-peer"],
    "executor layers": ["executor.py", "layers", "--no-peer"],
    "executor path": ["executor.py", "path", "--no-peer"],
    "executor requests": ["executor.py", "requests", "--no-peer"],
    "actors": ["actors.py", "--no-peer", "--calls", "1000"],
    "fray local": ["fray_jobs.py", "jobs", "2000", "calls", "2000", "--backends", "local"],
    "iris separate": ["iris_jobs.py", "separate", "300", "--no-peer"],
    "iris array": ["iris_jobs.py", "array", "2000", "--no-peer"],
    "scheduler": ["scheduler.py", "1"],
    "store": ["store.py", "--tasks", "100000"],
    "log lines": ["log_lines.py", "200000"],
    "lease": ["lease.py", "--repeats", "1"],
    "mirror files": ["mirror.py", "files"],
    "mirror open": ["mirror.py", "open"],
    "mirror objects": ["mirror.py", "objects"],
    "map_files": ["map_files.py", "--files", "200", "--repeats", "1"],
}
_PR_SET_CHILD_SUBREAPER = 36


def processor_seconds(checkout: Path, arguments: list[str]) -> float:
    """Run a benchmark of a checkout and return the processor time of all processes that it started."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "IRIS_STATE_DIR": f"{scratch}/iris", "MARIN_PREFIX": f"{scratch}/marin"}
        # The system's time for files on a disk differs more from run to run than what is compared.
        environment |= {"TMPDIR": "/dev/shm"} if arguments[0] == "executor.py" else {}
        environment.pop("VIRTUAL_ENV", None)
        command = [
            str(checkout / ".venv/bin/python"),
            str(checkout / "benchmarks" / arguments[0]),
            *arguments[1:],
        ]
        child = subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.DEVNULL)
        total, status = 0.0, 0
        # Daemons are handed over to this process, which is their subreaper, and counted when they end.
        while True:
            try:
                pid, ended, usage = os.wait4(-1, 0)
            except ChildProcessError:
                break
            total += usage.ru_utime + usage.ru_stime
            if pid == child.pid:
                status = child.returncode = os.waitstatus_to_exitcode(ended)
                stop = [str(checkout / ".venv/bin/iris"), "cluster", "stop", "--force"]
                subprocess.run(stop, cwd=checkout, env=environment, capture_output=True, check=False)
        if status:
            raise SystemExit(f"{' '.join(command)} ended with exit code {status}")
        return total


def main() -> None:
    """Run the cases in turns and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=[], help=", ".join(CASES))
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; cases are {', '.join(CASES)}")
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    for name in options.cases or CASES:
        before, after = [], []
        for turn in range(options.turns):
            checkouts = [(options.before, before), (options.after, after)]
            for checkout, found in checkouts if turn % 2 == 0 else reversed(checkouts):
                found.append(processor_seconds(checkout.resolve(), CASES[name]))
        line = {"bench": name, "before_s": round(min(before), 3), "after_s": round(min(after), 3)}
        print(json.dumps({**line, "ratio": round(min(after) / min(before), 3), "turns": options.turns}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
