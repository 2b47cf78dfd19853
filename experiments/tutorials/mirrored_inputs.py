"""Mirrored inputs: read files of another region, copied once within a budget.

python -m experiments.tutorials.mirrored_inputs
iris job run -- python -m experiments.tutorials.mirrored_inputs

A folder below the prefix simulates the other region, without a cloud. See docs/tutorials/mirrored_inputs.md.
"""

import os
from dataclasses import dataclass

from marin.execution import ExecutorStep, executor_main, mirrored, this_output_path, versioned
from rigging.filesystem import marin_prefix, open_url, read_bytes_or_none

SHARDS = 3
SHARD_BYTES = 1_000_000
RAW = "mirrored_inputs/raw"
BUDGET_GB = 0.01  # a little more than 10 MB


@dataclass(frozen=True)
class CountConfig:
    input_path: str
    letter: str
    output_path: str


def shard_name(index: int) -> str:
    """Return the name of an input file."""
    return f"shard-{index}.txt"


def count_letter(config: CountConfig) -> None:
    """Count a letter in all input files. `config.input_path` is a `mirror://` path here."""
    print(f"reading {config.input_path}")
    count = 0
    for index in range(SHARDS):
        with open_url(os.path.join(config.input_path, shard_name(index)), "r") as file:
            count += file.read().count(config.letter)
    with open_url(os.path.join(config.output_path, "count.txt"), "w") as file:
        file.write(f"{config.letter}: {count}\n")


# The path is relative to a region's prefix, and the same in all of them; where a file was copied from does not count.
count = ExecutorStep(
    name="mirrored_inputs/count",
    fn=count_letter,
    config=CountConfig(
        input_path=mirrored(versioned(RAW), budget_gb=BUDGET_GB),
        letter=versioned("a"),
        output_path=this_output_path(),
    ),
)


def write_raw(region: str) -> None:
    """Write the input to a region."""
    for index in range(SHARDS):
        with open_url(os.path.join(region, RAW, shard_name(index)), "w") as file:
            file.write("abcdefghij" * (SHARD_BYTES // 10))


def copied_bytes() -> int:
    """Return the bytes of the input that were copied into this region."""
    files = (read_bytes_or_none(os.path.join(marin_prefix(), RAW, shard_name(index))) for index in range(SHARDS))
    return sum(len(file) for file in files if file is not None)


def main() -> None:
    """Create two regions, run the step in one of them, and print the bytes copied from the other."""
    here, elsewhere = marin_prefix(), os.path.join(marin_prefix(), "mirrored_inputs", "elsewhere")
    write_raw(elsewhere)
    # In real life a file says once which regions there are (docs/mirror.md, "Regions").
    os.environ["MARIN_MIRROR_PREFIXES"] = f"{here},{elsewhere}"
    before = copied_bytes()
    paths = executor_main(steps=[count], description="Mirrored inputs")
    result = read_bytes_or_none(os.path.join(paths[count], "count.txt"))
    if result is not None:  # after `--explain` there may be none yet
        print(result.decode(), end="")
    print(f"copied from elsewhere: {copied_bytes() - before:,} bytes")


if __name__ == "__main__":
    main()
