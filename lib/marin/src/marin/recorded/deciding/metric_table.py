"""The table of `marin table`: the values that differ between outputs, beside their metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class MetricRow:
    """An output with its config and final metrics.

    Attributes:
        name: The step's name.
        path: The output path.
        config: The values of its config, by dotted name.
        metrics: Its final metrics.
    """

    name: str
    path: str
    config: Mapping[str, Any]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MetricTable:
    """A table of outputs.

    Attributes:
        fields: The names of the config's values that differ.
        metrics: The names of the metrics.
        rows: The outputs, in order.
    """

    fields: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: tuple[MetricRow, ...]

    @property
    def columns(self) -> list[str]:
        """Return the headers."""
        return ["step", *self.fields, *self.metrics]

    def cells(self, row: MetricRow) -> list[str]:
        """Return the cells of a row as text; those without a value are empty."""
        fields = (row.config.get(name) for name in self.fields)
        values = (row.metrics.get(name) for name in self.metrics)
        numbers = ("" if value is None else f"{value:.6g}" for value in values)
        return [row.name, *("" if value is None else str(value) for value in fields), *numbers]

    def label(self, row: MetricRow) -> str:
        """Return a row's name with the values that differ."""
        return ", ".join([row.name, *(f"{name}={row.config.get(name)}" for name in self.fields)])

    def record(self, row: MetricRow) -> dict[str, Any]:
        """Return a row as plain values."""
        config = {name: row.config.get(name) for name in self.fields}
        return {"step": row.name, "path": row.path, "config": config, "metrics": dict(row.metrics)}


def flat(config: Any, beginning: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and value of each leaf of a recorded config."""
    items: Iterator[tuple[Any, Any]]
    if isinstance(config, Mapping):
        items = iter(config.items())
    elif isinstance(config, list):
        items = iter(enumerate(config))
    else:
        yield beginning, config
        return
    for key, value in items:
        yield from flat(value, f"{beginning}.{key}" if beginning else str(key))


def metric_table(
    rows: Sequence[MetricRow], shown: Sequence[str] = (), sort: str = "", *, descending: bool = False
) -> MetricTable:
    """Return the table of outputs that have metrics.

    Args:
        rows: The outputs.
        shown: The metrics to show; all if empty.
        sort: The metric or config value to sort by; empty for the order of `rows`.
        descending: Whether the largest comes first. Outputs without the value come last either way.

    Raises:
        InvalidRequest: No output has a metric or value of that name.
    """
    found = [row for row in rows if row.metrics]
    metrics = list(dict.fromkeys(name for row in found for name in row.metrics))
    names = list(dict.fromkeys(name for row in found for name in row.config))
    for name in [*shown, *([sort] if sort and sort not in names else [])]:
        if name not in metrics:
            raise InvalidRequest(f"no metric {name!r}; there are {', '.join(sorted(metrics)) or 'none'}")
    paths = {row.path for row in found}
    fields = [
        name
        for name in names
        if len({repr(row.config[name]) for row in found if name in row.config}) > 1
        # Paths of outputs differ anyway.
        and not all(_is_path(row.config.get(name), paths) for row in found)
    ]
    if sort:
        values: dict[str, Any] = {row.path: row.metrics.get(sort, row.config.get(sort)) for row in found}
        known = [row for row in found if values[row.path] is not None]
        numeric = all(isinstance(values[row.path], (int, float)) for row in known)
        known.sort(key=lambda row: values[row.path] if numeric else str(values[row.path]), reverse=descending)
        found = [*known, *(row for row in found if values[row.path] is None)]
    return MetricTable(tuple(fields), tuple(shown or sorted(metrics)), tuple(found))


def _is_path(value: Any, paths: set[str]) -> bool:
    return isinstance(value, str) and any(value == path or value.startswith(f"{path}/") for path in paths)
