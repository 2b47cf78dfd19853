"""Hello, world, with the second step as a job of its own.

iris job run -- python -m experiments.tutorials.hello_world_remote

`remote()` says where a function runs, not what it makes: the output paths are those of `experiments.hello_world`.
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
