"""Hello, world: two steps. One reads the output of the other.

python experiments/hello_world.py              # in this process
python experiments/hello_world.py --dry_run    # only say what would run
iris job run -- python -m experiments.hello_world

A second run finds both outputs and does nothing. Each output path contains a hash of the step's name, its versioned
values and its inputs. Wrap `n=100` below as `n=versioned(100)`, and a different n makes a new output.
"""

import json
import os
from dataclasses import dataclass

from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path
from rigging.filesystem import open_url, read_bytes_or_none


@dataclass(frozen=True)
class GenerateDataConfig:
    n: int
    output_path: str


def generate_data(config: GenerateDataConfig) -> None:
    """Write the numbers 0 to n-1."""
    with open_url(os.path.join(config.output_path, "numbers.json"), "w") as file:
        json.dump(list(range(config.n)), file)


@dataclass(frozen=True)
class ComputeStatsConfig:
    input_path: str
    output_path: str


def compute_stats(config: ComputeStatsConfig) -> None:
    """Write the sum, the smallest and the largest of the numbers."""
    with open_url(os.path.join(config.input_path, "numbers.json"), "r") as file:
        numbers = json.load(file)
    stats = {"sum": sum(numbers), "min": min(numbers), "max": max(numbers)}
    with open_url(os.path.join(config.output_path, "stats.json"), "w") as file:
        json.dump(stats, file)


data = ExecutorStep(
    name="hello_world/data",
    fn=generate_data,
    config=GenerateDataConfig(n=100, output_path=this_output_path()),
)

stats = ExecutorStep(
    name="hello_world/stats",
    fn=compute_stats,
    config=ComputeStatsConfig(input_path=output_path_of(data), output_path=this_output_path()),
)


def main() -> None:
    """Run both steps and print the result."""
    output_paths = executor_main(steps=[data, stats], description="Hello, world: numbers and their statistics")
    result = read_bytes_or_none(os.path.join(output_paths[stats], "stats.json"))
    if result is not None:
        print(f"stats: {result.decode()}")


if __name__ == "__main__":
    main()
