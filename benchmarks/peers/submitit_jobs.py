"""submitit's side of benchmarks/slurm.py. Needs submitit alone.

usage: python submitit_jobs.py FOLDER CASE COUNT      (CASE is one or array; prints a JSON line)
"""

import json
import sys
import time

import submitit


def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


def main(folder: str, case: str, count: int) -> dict[str, float]:
    executor = submitit.SlurmExecutor(folder)
    executor.update_parameters(partition="main", time=10, mem="64M", cpus_per_task=1, array_parallelism=count)
    executor.submit(double, 0).result()  # uncounted: imports
    submits, results = [], []
    for number in range(count if case == "one" else 1):
        begin = time.perf_counter()
        jobs = [executor.submit(double, number)] if case == "one" else executor.map_array(double, range(count))
        submits.append(time.perf_counter() - begin)
        found = [job.result() for job in jobs]
        results.append(time.perf_counter() - begin)
        assert found == ([2 * number] if case == "one" else [2 * item for item in range(count)])
    return {"submit_s": sorted(submits)[len(submits) // 2], "result_s": sorted(results)[len(results) // 2]}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
