"""Read the metrics of outputs: what `marin.metrics.log` recorded, files of numbers, TensorBoard's and W&B's files, and
return values.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from marin.output_files import ARTIFACT_FILE, LINK_NAME, LINK_URL, METRICS_FILE
from marin.recorded.reading.event_files import EVENT_FILE, RUN_FILE, event_values, is_number, run_values
from marin.recorded.reading.store import below, size_of
from marin.stored_files import names_in
from rigging.filesystem import read_bytes_or_none

MOST_BYTES: Final = 16 << 20
"""Larger files of numbers are not read."""
STEP_NAMES: Final = ("step", "global_step", "_step", "iteration")
"""The columns with the step of a row, first come first."""
RETURNED: Final = "returned"
"""The name of a return value that is a number."""

_LOG_DIRECTORIES: Final = frozenset({"tensorboard", "tb", "tb_logs", "logs", "lightning_logs", "runs", "wandb"})
"""The directories of an output in which files of TensorBoard and W&B are looked for."""
_LINES_AT_ONCE: Final = 1000
_ALL_OF_END: Final = 4 << 10
_KEY: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:')
_MOST_LISTINGS: Final = 100
_DEPTH: Final = 3
_NOT_RUNS: Final = frozenset({"latest-run", "checkpoints", "files", "tmp"})

Curves = dict[str, dict[int, float]]
"""The values of each metric by step."""


class OutputFiles(Protocol):
    """The files of an output, by their names in it."""

    def names(self, directory: str = "") -> list[str]:
        """Return the names in a directory; [] if it does not exist."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if it does not exist."""
        ...

    def size(self, name: str) -> int:
        """Return a file's size; 0 if it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """The files of an output on any storage.

    Attributes:
        output: The output path.
    """

    output: str

    def names(self, directory: str = "") -> list[str]:
        """Return the names in a directory; [] if it does not exist."""
        return names_in(below(self.output, directory) if directory else self.output)

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if it does not exist."""
        return read_bytes_or_none(below(self.output, name))

    def size(self, name: str) -> int:
        """Return a file's size; 0 if it does not exist."""
        return size_of(below(self.output, name)) or 0


def read_metrics(files: OutputFiles) -> tuple[Curves, dict[str, float]]:
    """Return the metrics of an output, by name: their curves, and the final values, those returned among them.

    Where several files have a metric, `.executor_metrics` counts before others. A step that was repeated has its last
    value.
    """
    names = sorted(files.names())
    curves = _of_logs(files, names)
    for name in names:
        parse = _PARSERS.get(name.rpartition(".")[2])
        if parse is not None and not name.startswith("."):
            curves |= _of_file(files, name, parse)
    curves |= metric_lines(files.read(METRICS_FILE) or b"")
    finals = {name: curve[max(curve)] for name, curve in curves.items()}
    return curves, finals | _returned(files.read(ARTIFACT_FILE))


def last_values(lines: bytes, returned: bytes | None) -> dict[str, float]:
    """Return the final metrics of an output, by the end of its `.executor_metrics` and its return value.

    Args:
        lines: Whole lines, or an end that begins within one.
        returned: The content of the file with the return value; None without one.
    """
    cut = lines.rfind(b"\n", 0, max(0, len(lines) - _ALL_OF_END)) + 1
    kept = [lines[cut:]]
    known = set(_KEY.findall(kept[0]))
    # Parsing all costs milliseconds an output: of earlier lines only those count that have another metric.
    for line in reversed(lines[:cut].splitlines()):
        if not known.issuperset(keys := _KEY.findall(line)):
            known.update(keys)
            kept.append(line)
    return {name: curve[max(curve)] for name, curve in metric_lines(b"\n".join(reversed(kept))).items()} | _returned(
        returned
    )


def links_in(lines: bytes) -> list[tuple[str, str]]:
    """Return the name and the address of each page that an `.executor_metrics` links."""
    rows = (row for block in _json_lines(lines.decode("utf-8", "replace")) for row in block if LINK_URL in row)
    found = [(str(row.get(LINK_NAME, "")), str(row[LINK_URL])) for row in rows]
    return [(name, url) for name, url in dict.fromkeys(found) if url.startswith(("https://", "http://"))]


def metric_lines(lines: bytes) -> Curves:
    """Return the curves in a part of an `.executor_metrics`."""
    return _curves(_json_lines(lines.decode("utf-8", "replace")))


def _of_logs(files: OutputFiles, names: Sequence[str]) -> Curves:
    """Return the curves in TensorBoard's and W&B's files. Those of several directories begin with the directory."""
    logs = [name for name in names if _is_log(name)]
    pending = [name for name in names if name in _LOG_DIRECTORIES]
    listed = 0
    while pending and listed < _MOST_LISTINGS:
        directory, listed = pending.pop(0), listed + 1
        for name in sorted(files.names(directory)):
            if _is_log(name):
                logs.append(f"{directory}/{name}")
            # Without links: W&B's `latest-run` is one of the runs beside it.
            elif directory.count("/") < _DEPTH and "." not in name and name not in _NOT_RUNS:
                pending.append(f"{directory}/{name}")
    found: dict[str, Curves] = {}
    for file in logs:
        if files.size(file) <= MOST_BYTES:
            read = run_values if file.endswith(RUN_FILE) else event_values
            curves = found.setdefault(file.rpartition("/")[0], {})
            for step, name, value in read(files.read(file) or b""):
                curves.setdefault(name, {})[step] = value
    known = {directory: curves for directory, curves in found.items() if curves}
    if len(known) < 2:
        return next(iter(known.values()), {})
    return {f"{directory}/{name}": curve for directory, curves in known.items() for name, curve in curves.items()}


def _is_log(name: str) -> bool:
    return name.startswith(EVENT_FILE) or name.endswith(RUN_FILE)


def _of_file(files: OutputFiles, name: str, parse: Callable[[str], Iterator[Mapping[str, Any]]]) -> Curves:
    if files.size(name) > MOST_BYTES:
        return {}
    content = files.read(name)
    try:
        rows = [*parse((content or b"").decode())]
    except (ValueError, csv.Error, RecursionError):
        return {}
    # Anything else is a dataset.
    if not all(value is None or is_number(value) for row in rows for value in row.values()):
        return {}
    return _curves([rows])


def _curves(blocks: Iterable[Sequence[Mapping[str, Any]]]) -> Curves:
    found: Curves = {}
    count = 0
    for rows in blocks:
        if not _add_columns(rows, found):
            _add_rows(rows, count, found)
        count += len(rows)
    return found


def _add_columns(rows: Sequence[Mapping[str, Any]], found: Curves) -> bool:
    """Add rows of equal names and finite numbers, a column at a time; return False for any other, and add nothing."""
    names = tuple(rows[0]) if rows else ()
    key = next((name for name in STEP_NAMES if name in names), None)
    if key is None or any(tuple(row) != names for row in rows):
        return False
    columns = dict(zip(names, zip(*(row.values() for row in rows), strict=True), strict=True))
    try:
        if not all(
            set(map(type, column)) <= {int, float} and math.isfinite(sum(column)) for column in columns.values()
        ):
            return False
    except OverflowError:  # whole numbers that no float can hold
        return False
    steps = list(map(int, columns.pop(key)))
    for name, column in columns.items():
        found.setdefault(name, {}).update(zip(steps, map(float, column), strict=True))
    return True


def _add_rows(rows: Sequence[Mapping[str, Any]], count: int, found: Curves) -> None:
    for number, row in enumerate(rows, count):
        key = next((name for name in STEP_NAMES if name in row), None)
        step = row[key] if key is not None and is_number(row[key]) else number
        for name, value in row.items():
            if name != key and is_number(value):
                found.setdefault(name, {})[int(step)] = float(value)


def _json_lines(text: str) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the objects of whole lines, in blocks. A line that a kill has cut off, or a note, is no object."""
    lines = text.split("\n")
    # Many lines at once take a third of the time.
    for start in range(0, len(lines), _LINES_AT_ONCE):
        yield _objects(lines[start : start + _LINES_AT_ONCE])


def _objects(lines: Sequence[str]) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(f"[{','.join(filter(None, lines))}]")
    except (ValueError, RecursionError):
        return [] if len(lines) == 1 else [row for line in lines for row in _objects([line])]
    return [row for row in found if isinstance(row, dict)]


def _strict_json_lines(text: str) -> Iterator[Mapping[str, Any]]:
    for line in text.splitlines():
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("not an object")
        yield row


def _csv_rows(text: str) -> Iterator[Mapping[str, Any]]:
    reader = csv.reader(text.splitlines(), strict=True)
    names = next(reader, [])
    for row in reader:
        yield {name: float(value) if value else None for name, value in zip(names, row, strict=True)}


_PARSERS: Final[Mapping[str, Callable[[str], Iterator[Mapping[str, Any]]]]] = {
    "jsonl": _strict_json_lines,
    "csv": _csv_rows,
}


def _returned(content: bytes | None) -> dict[str, float]:
    try:
        value: Any = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if is_number(value):
        return {RETURNED: float(value)}
    return {name: float(item) for name, item in value.items() if is_number(item)} if isinstance(value, dict) else {}
