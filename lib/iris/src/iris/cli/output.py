"""How commands show what they found: tables for people, JSON for programs. Lines about progress go to stderr."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import click


class Output(Protocol):
    """One way to show results on stdout."""

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[str]], records: Sequence[Mapping[str, Any]]) -> None:
        """Show a list: as a table of `rows`, or as the `records` behind them."""

    def record(self, lines: Sequence[str], record: Mapping[str, Any]) -> None:
        """Show one thing: as `lines` of text, or as its `record`."""


class TextOutput:
    """For people: aligned columns."""

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[str]], records: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        if not rows:
            return
        for line in table(columns, rows):
            click.echo(line)

    def record(self, lines: Sequence[str], record: Mapping[str, Any]) -> None:  # noqa: ARG002
        for line in lines:
            click.echo(line)


class JsonOutput:
    """For programs: one JSON document."""

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[str]], records: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        click.echo(json.dumps(list(records), indent=1))

    def record(self, lines: Sequence[str], record: Mapping[str, Any]) -> None:  # noqa: ARG002
        click.echo(json.dumps(record, indent=1))


def output(as_json: bool) -> Output:
    """The output for a command's --json flag."""
    return JsonOutput() if as_json else TextOutput()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with a header, columns aligned, no trailing spaces."""
    lines = [[column.upper() for column in columns], *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def say(text: str) -> None:
    """Tell the user something on stderr; a closed stderr does not end the command."""
    try:
        sys.stderr.write(f"iris: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def duration(seconds: float | None) -> str:
    """A duration for people: "0.4 s", "3 min 20 s", "2 h 5 min"; "-" for none."""
    if seconds is None:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def moment(at_ms: int, now_ms: int) -> str:
    """A time for people, in local time: the clock for the last day, the date before; "-" for 0."""
    if not at_ms:
        return "-"
    form = "%H:%M:%S" if now_ms - at_ms < 86_400_000 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at_ms / 1000))
