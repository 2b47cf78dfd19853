"""Read the metrics of outputs: what `marin.metrics.log` recorded, files of numbers, TensorBoard's and W&B's files, and
return values.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from marin.output_files import ARTIFACT_FILE, LINK_NAME, LINK_URL, METRICS_FILE
from marin.recorded.reading.curve_rows import CurveRows, Curves, is_number, rows_of
from marin.recorded.reading.event_files import EVENT_FILE, RUN_FILE, event_values, run_values
from marin.recorded.reading.store import below, size_of
from marin.stored_files import names_in
from rigging.filesystem import read_bytes_or_none

MOST_BYTES: Final = 16 << 20
"""Larger files of numbers are not read."""
RETURNED: Final = "returned"
"""The name of a return value that is a number."""

_LOG_DIRECTORIES: Final = frozenset({"tensorboard", "tb", "tb_logs", "logs", "lightning_logs", "runs", "wandb"})
"""The directories of an output in which files of TensorBoard and W&B are looked for."""
_ALL_OF_END: Final = 4 << 10
_VALUE: Final = re.compile(rb'": *[-+.\deE]+')
_MOST_LISTINGS: Final = 100
_DEPTH: Final = 3
_NOT_RUNS: Final = frozenset({"latest-run", "checkpoints", "files", "tmp"})


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
    found = sources(files)
    curves = _of_logs(files, filter(_is_log, found))
    for name in found:
        if not _is_log(name):
            curves |= _of_file(files, name)
    curves |= metric_lines(files.read(METRICS_FILE) or b"")
    finals = {name: curve[1][-1] for name, curve in curves.items()}
    return curves, finals | _returned(files.read(ARTIFACT_FILE))


def last_values(lines: bytes, returned: bytes | None = None) -> dict[str, float]:
    """Return the final metrics of an output, by the end of its `.executor_metrics` and its return value.

    Args:
        lines: Whole lines, or an end that begins within one.
        returned: The content of the file with the return value; None or b"" without one.
    """
    cut = lines.rfind(b"\n", 0, max(0, len(lines) - _ALL_OF_END)) + 1
    # Parsing all costs milliseconds an output: of earlier lines only the last one with the same names counts.
    earlier = lines[:cut].split(b"\n")
    last = {names: number for number, names in enumerate(_VALUE.sub(b"", lines[:cut]).split(b"\n"))}
    values = metric_lines(b"\n".join([*(earlier[number] for number in sorted(last.values())), lines[cut:]]))
    return {name: curve[1][-1] for name, curve in values.items()} | _returned(returned)


def links_in(lines: bytes) -> list[tuple[str, str]]:
    """Return the name and the address of each page that an `.executor_metrics` links."""
    found = [(str(row.get(LINK_NAME, "")), str(row[LINK_URL])) for row in rows_of(lines) if LINK_URL in row]
    return [(name, url) for name, url in dict.fromkeys(found) if url.startswith(("https://", "http://"))]


def metric_lines(lines: bytes) -> Curves:
    """Return the curves in a part of an `.executor_metrics`."""
    found = CurveRows()
    found.add_lines(lines)
    return found.curves()


def sources(files: OutputFiles) -> dict[str, int]:
    """Return the files of an output that may have numbers, beside `.executor_metrics`, and their sizes."""
    names = sorted(files.names())
    found = [name for name in names if _is_log(name) or (name[0] != "." and _ending(name) in _PARSERS)]
    pending = [name for name in names if name in _LOG_DIRECTORIES]
    listed = 0
    while pending and listed < _MOST_LISTINGS:
        directory, listed = pending.pop(0), listed + 1
        for name in sorted(files.names(directory)):
            if _is_log(name):
                found.append(f"{directory}/{name}")
            # Without links: W&B's `latest-run` is one of the runs beside it.
            elif directory.count("/") < _DEPTH and "." not in name and name not in _NOT_RUNS:
                pending.append(f"{directory}/{name}")
    return {name: size for name in found if (size := files.size(name)) <= MOST_BYTES}


def _of_logs(files: OutputFiles, names: Iterable[str]) -> Curves:
    """Return the curves in TensorBoard's and W&B's files. Those of several directories begin with the directory."""
    found: dict[str, CurveRows] = {}
    for file in names:
        read = run_values if file.endswith(RUN_FILE) else event_values
        rows = found.setdefault(file.rpartition("/")[0], CurveRows())
        for step, name, value in read(files.read(file) or b""):
            rows.add(name, step, value)
    known = {directory: curves for directory, rows in found.items() if (curves := rows.curves())}
    if len(known) < 2:
        return next(iter(known.values()), {})
    return {f"{directory}/{name}": curve for directory, curves in known.items() for name, curve in curves.items()}


def _is_log(name: str) -> bool:
    return name.rpartition("/")[2].startswith(EVENT_FILE) or name.endswith(RUN_FILE)


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def _of_file(files: OutputFiles, name: str) -> Curves:
    content = files.read(name) or b""
    found = CurveRows()
    try:
        for row in _PARSERS[_ending(name)](content.decode()):
            if not all(value is None or is_number(value) for value in row.values()):
                return {}  # a dataset
            found.add_rows([row])
    except (ValueError, csv.Error, RecursionError):
        return {}
    return found.curves()


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
        value: Any = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return {}
    if is_number(value):
        return {RETURNED: float(value)}
    return {name: float(item) for name, item in value.items() if is_number(item)} if isinstance(value, dict) else {}
