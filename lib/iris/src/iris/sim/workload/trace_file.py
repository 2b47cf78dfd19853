"""Workloads from CSV files with one job per line."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from iris.sim.workload.fields import Fields
from iris.sim.workload.model import Arrival
from rigging.errors import InvalidRequest

REQUIRED: Final = ("submit_s", "user", "duration_s", "cpu")
OPTIONAL: Final = ("band", "tasks", "memory_gib", "device", "devices", "group_by")


def read_trace(path: Path) -> list[Arrival]:
    """Return the jobs of a trace, by time of submission; docs/simulation.md describes the columns.

    Raises InvalidRequest with file, line and value, also if the file cannot be read.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            arrivals = list(_read(path, csv.DictReader(file)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest(f"{path}: cannot be read: {error}") from error
    if not arrivals:
        raise InvalidRequest(f"{path}: there is no job in it")
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


def _read(path: Path, reader: "csv.DictReader[str]") -> Iterator[Arrival]:
    names = [name.strip() for name in reader.fieldnames or ()]
    known = ", ".join((*REQUIRED, *OPTIONAL))
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in (*REQUIRED, *OPTIONAL)]
    if missing or unknown:
        what = f"column {missing[0]!r} is missing" if missing else f"column {unknown[0]!r} is unknown"
        raise InvalidRequest(f"{path}, line 1: {what}; known are {known}")
    reader.fieldnames = names
    for values in reader:
        place = f"{path}, line {reader.line_num}"
        if None in values:
            raise InvalidRequest(f"{place}: more values than the {len(names)} columns: {values[None]}")
        fields = Fields(place, values)
        yield Arrival(
            at_s=fields.number("submit_s"),
            user=fields.user(fields.text("user")),
            band=fields.band(),
            tasks=fields.count("tasks", 1),
            need=fields.resources(),
            duration_s=fields.number("duration_s"),
            group_by=fields.text("group_by"),
            origin=place,
        )
