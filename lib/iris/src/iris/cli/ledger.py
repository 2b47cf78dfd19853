"""`iris usage`: what the cluster's cores and chips were used for."""

from datetime import datetime
from typing import Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo_data, output, say
from iris.cli.params import MOMENT
from iris.cli.query import as_csv
from rigging.text.hours import hours_table

_HOUR_MS: Final = 3_600_000
_MANY: Final = 100_000
_NAMES: Final = {
    "user": "coalesce(user, '(nobody)')",
    "job": "coalesce(root_id, '(small jobs of ' || user || ')', '(nobody)')",
    "group": "worker_group",
}


@click.command()
@click.option("--by", type=click.Choice([*_NAMES]), default="user", show_default=True, help="Add up by this.")
@click.option(
    "--since",
    type=MOMENT,
    metavar="T",
    default="7d",
    show_default=True,
    help="Hours since: 2026-05-03T14:00, or 7d ago.",
)
@click.option("--csv", "for_sheets", is_flag=True, help="Print CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def usage(context: CliContext, by: str, since: datetime, for_sheets: bool, as_json: bool) -> None:
    """Show for what cores and chips were used, in hours.

    Productive: attempts that succeeded. Lost: those that did not. Environment: before a task's first start.
    Restart: before a further one. Waiting: for child jobs. Reserved: kept free for a job. Running: not decided yet.
    Users see their own use, admins everybody's and idle time. `iris query` has the table ledger.
    """
    since_ms = round(since.timestamp() * 1000)
    sql = (
        f"SELECT {_NAMES[by]} AS name, class, sum(core_seconds) / 3600 AS core_hours, "
        f"sum(chip_seconds) / 3600 AS chip_hours, sum(cost) AS cost FROM ledger "
        f"WHERE start_ms > {since_ms - _HOUR_MS} GROUP BY 1, 2 ORDER BY 1, 2"
    )
    with context.client() as client:
        found = client.query(sql, _MANY)
    items: list[dict[str, Any]] = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    if for_sheets:
        echo_data(as_csv(found))
    else:
        output(as_json).rows(*hours_table(by, items), items)
    if not items:
        say("no hours since then: the controller adds them once a minute")
    if found.truncated:
        say(f"only the first {len(found.rows)} sums are shown; --since limits the hours")
