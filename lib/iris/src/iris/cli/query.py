"""`iris query SQL`."""

import csv
import io
import sys
from typing import TYPE_CHECKING, Any

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, echo_data, echo_json, say, table
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from iris.client.types import QueryResult, QueryValue


@click.command()
@click.argument("sql")
@click.option(
    "-f", "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True,
    help="Output format.",
)  # fmt: skip
@click.option(
    "--max-rows", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Maximum number of rows."
)
@pass_context
def query(context: CliContext, sql: str, form: str, max_rows: int) -> None:
    """Run one SELECT in the controller's database, e.g.

    \b
      iris query "SELECT job_id, error FROM jobs WHERE state_word = 'failed'"
      iris query "SELECT user, sum(running_tasks) FROM jobs GROUP BY user" -f csv

    The tables include jobs, tasks, workers, events and audit; docs/query.md lists all and their columns. Queries are
    read-only and limited to 5 seconds. With SQL -, the query is read from stdin.
    """
    text = sys.stdin.read() if sql == "-" else sql
    with context.client() as client:
        result = client.query(text, max_rows)
    if form == "json":
        echo_json(as_records(result), ensure_ascii=False)
    elif form == "csv":
        echo_data(as_csv(result))
    else:
        for line in as_table(result):
            echo(line)
    if result.truncated:
        say(f"only the first {len(result.rows)} rows are shown; --max-rows gives more, LIMIT and OFFSET the others")


def as_records(result: "QueryResult") -> list[dict[str, Any]]:
    """Return an object for each row, with bytes as hex. Raise InvalidRequest if two columns share a name, because one
    would be lost.
    """
    twice = sorted({name for name in result.columns if result.columns.count(name) > 1})
    if twice:
        raise InvalidRequest(
            f"more than one column is named {', '.join(map(repr, twice))}, and an object of JSON can have only one: "
            "name them apart with AS, or take -f csv"
        )
    return [
        {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in zip(result.columns, row, strict=True)
        }
        for row in result.rows
    ]


def as_csv(result: "QueryResult") -> str:
    """Return a header and a line for each row in the format of RFC 4180. NULL is empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(result.columns)
    writer.writerows([["" if value is None else _text(value) for value in row] for row in result.rows])
    return text.getvalue()


def as_table(result: "QueryResult") -> list[str]:
    """Return aligned columns. NULL is "-", and line breaks in values do not break lines."""
    rows = [["-" if value is None else " ".join(_text(value).splitlines()) for value in row] for row in result.rows]
    return table(result.columns, rows)


def _text(value: "QueryValue") -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
