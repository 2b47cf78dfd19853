"""Clean a table with Polars and summarize it, in three steps. Two of them need Polars.

uv run --extra examples-polars python -m experiments.examples.clean_polars
"""

import csv
import os
from dataclasses import dataclass

from marin.execution import ExecutorStep, InputName, executor_main, output_path_of, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import open_url

POLARS = ["examples-polars"]  # an extra of pyproject.toml: on a cluster, only these steps' jobs install it
CITIES = ("Oslo", " oslo", "Lima", "LIMA ", "Kyoto", "")


@dataclass(frozen=True)
class RawConfig:
    rows: int
    output_path: str


def make_raw(config: RawConfig) -> None:
    """Write a messy table: inconsistent spelling, gaps, outliers and repeated rows."""
    with open_url(os.path.join(config.output_path, "raw.csv"), "w") as file:
        writer = csv.writer(file)
        writer.writerow(["reading", "city", "celsius"])
        for row in range(config.rows):
            reading = row - row % 10 if row % 10 == 1 else row  # one row in ten repeats the one before it
            celsius = "" if reading % 17 == 0 else 999 if reading % 23 == 0 else reading % 31
            writer.writerow([reading, CITIES[reading % len(CITIES)], celsius])


@dataclass(frozen=True)
class CleanConfig:
    raw: InputName
    hottest: float
    output_path: str


def clean(config: CleanConfig) -> None:
    """Write the rows with a city and a plausible temperature, without duplicates."""
    import polars as pl

    with open_url(os.path.join(str(config.raw), "raw.csv"), "rb") as file:
        raw = pl.read_csv(file.read())
    kept = (
        raw.with_columns(pl.col("city").str.strip_chars().str.to_titlecase())
        .filter(pl.col("city") != "", pl.col("celsius").is_not_null(), pl.col("celsius") <= config.hottest)
        .unique("reading", keep="first", maintain_order=True)
    )
    print(f"kept {len(kept):,} of {len(raw):,} rows", flush=True)
    with open_url(os.path.join(config.output_path, "clean.parquet"), "wb") as file:
        kept.write_parquet(file)


@dataclass(frozen=True)
class SummaryConfig:
    clean: InputName
    output_path: str


def summarize(config: SummaryConfig) -> None:
    """Write and print the number of rows, and the mean and highest temperature, of each city."""
    import polars as pl

    with open_url(os.path.join(str(config.clean), "clean.parquet"), "rb") as file:
        table = pl.read_parquet(file.read())
    celsius = pl.col("celsius")
    columns = pl.len().alias("rows"), celsius.mean().round(2).alias("mean"), celsius.max().alias("highest")
    cities = table.group_by("city").agg(*columns).sort("city")
    print(cities, flush=True)
    with open_url(os.path.join(config.output_path, "cities.csv"), "w") as file:
        file.write(cities.write_csv())


def make_step() -> ExecutorStep[SummaryConfig]:
    """Return the last step, which depends on the others."""
    raw = ExecutorStep(name="examples/readings", fn=make_raw, config=RawConfig(versioned(100_000), this_output_path()))
    cleaned = ExecutorStep(
        name="examples/clean",
        fn=remote(clean, pip_dependency_groups=POLARS),
        config=CleanConfig(output_path_of(raw), versioned(60.0), this_output_path()),
    )
    return ExecutorStep(
        name="examples/cities",
        fn=remote(summarize, pip_dependency_groups=POLARS),
        config=SummaryConfig(output_path_of(cleaned), this_output_path()),
    )


if __name__ == "__main__":
    executor_main(steps=[make_step()], description="Clean a table with Polars")
