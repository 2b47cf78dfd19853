"""Hello, world, with the second step as a separate job.

iris job run -- python -m experiments.tutorials.hello_world_remote

`remote()` changes only where a function runs: the output paths are the same as in `experiments.hello_world`.
"""

import dataclasses
import os

from experiments.hello_world import compute_stats, data, stats
from marin.execution import executor_main
from marin.execution.remote import remote
from rigging.filesystem import read_bytes_or_none

remote_stats = dataclasses.replace(stats, fn=remote(compute_stats))


def main() -> None:
    """Run both steps, the second through fray, and print the result."""
    output_paths = executor_main(steps=[data, remote_stats], description="Hello, world with a remote step")
    result = read_bytes_or_none(os.path.join(output_paths[remote_stats], "stats.json"))
    if result is not None:
        print(f"stats: {result.decode()}")


if __name__ == "__main__":
    main()
