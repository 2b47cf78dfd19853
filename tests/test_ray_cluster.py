"""Whether tasks of a Ray cluster run on its nodes and all see the same files; a script, as pytest is not on clusters.

    ray job submit --address http://127.0.0.1:8265 --working-dir . --no-wait -- python tests/test_ray_cluster.py
    ... -- python tests/test_ray_cluster.py --tasks 256 --file gs://bucket/file

Each task reads one file by fsspec (this one, from the working directory that Ray has sent along, or any URL) and tells
its node. Exit code 1 when a task fails, or has read something else than this process; nodes that no task has run on are
named, but may just be busy.
"""

import argparse
import hashlib
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import fsspec
import ray

TASKS_A_NODE = 4
SECONDS_A_TASK = 0.5


def read_digest(url: str) -> str:
    """The digest of what is there."""
    with fsspec.open(url, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def report(url: str, seconds: float) -> tuple[str, str, str]:
    """Read the file; return its digest, this node's id and its host's name."""
    digest = read_digest(url)
    # So that the others have to run elsewhere.
    time.sleep(seconds)
    return digest, ray.get_runtime_context().get_node_id(), socket.gethostname()


def check(url: str, tasks: int | None, seconds: float = SECONDS_A_TASK) -> bool:
    """Run the tasks, print what they report, and return whether all is well."""
    here = read_digest(url)
    nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1}
    count = tasks or TASKS_A_NODE * max(1, len(nodes))
    print(f"{count} tasks read {url} on {len(nodes)} nodes with CPUs", flush=True)
    found: Counter[tuple[str, str]] = Counter()
    wrong = 0
    for reference in [report.remote(url, seconds) for _ in range(count)]:
        try:
            digest, node, host = ray.get(reference)
        except ray.exceptions.RayError as error:
            wrong += 1
            print(f"FAILED: {error}", flush=True)
            continue
        found[node, host] += 1
        if digest != here:
            wrong += 1
            print(f"DIFFERS on {host} (node {node}): {digest} instead of {here}", flush=True)
    for (node, host), times in sorted(found.items()):
        print(f"node {node} {host}: {times} tasks")
    for node in sorted(nodes.keys() - {node for node, _ in found}):
        print(f"node {node} {nodes[node]['NodeManagerHostname']}: no task")
    print(f"{count - wrong} of {count} tasks are well, on {len(found)} distinct nodes", flush=True)
    return wrong == 0


def main(argv: Sequence[str]) -> int:
    """Read the command line, connect to the cluster of this job or of RAY_ADDRESS, and check it."""
    parser: Any = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, help=f"how many (default: {TASKS_A_NODE} for each node)")
    parser.add_argument("--file", default=os.path.relpath(__file__), help="path or URL that every node can read")
    options = parser.parse_args(argv)
    ray.init(log_to_driver=False)
    return 0 if check(options.file, options.tasks) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
