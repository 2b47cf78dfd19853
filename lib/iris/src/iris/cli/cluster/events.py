"""`iris cluster events` and `iris cluster audit`: the history of the cluster, and of requests."""

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, output, say
from iris.cli.params import MOMENT
from iris.domain.states import PriorityBand

if TYPE_CHECKING:
    from iris.client import IrisClient

BOOKKEEPING: Final = ("assigned", "building", "running", "begun", "retry due", "lent cpu", "resized", "heard")
_FIRST: Final = ("became", "outcome", "action", "reason", "error", "trouble")
_TOLD: Final = (
    "exit_code", "exit_signal", "silent_ms", "what", "version", "max_weight", "max_band", "band", "timeout_ms",
    "scheduling_timeout_ms", "max_retries_failure", "cpu_millis", "memory_bytes", "disk_bytes",
)  # fmt: skip
_LOOKS_EVERY_S: Final = 1.0
_AT_ONCE: Final = 1000
_USER_HELP: Final = "Only events of this user's jobs, or asked for by this user."
_SINCE_HELP: Final = "Only events since: 2026-05-03T14:00, or 10m ago."


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Print new events as they happen, until Ctrl-C.")
@click.option("--since", type=MOMENT, metavar="T", help=_SINCE_HELP)
@click.option("--user", metavar="USER", help=_USER_HELP)
@click.option("--about", metavar="NAME", help="Only events of this worker, token, or job with its tasks and children.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind, e.g. preempted.")
@click.option("--all", "everything", is_flag=True, help="Also bookkeeping: starts, retries that are due, lent CPU.")
@click.option("-n", "--last", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Newest N events.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@pass_context
def events(
    context: CliContext,
    follow: bool,
    since: datetime | None,
    user: str | None,
    about: str | None,
    kinds: Sequence[str],
    everything: bool,
    last: int,
    as_json: bool,
) -> None:
    """Show the cluster's history: joins and losses of workers, cordons, placements, ends, preemptions, stops,
    revocations.

    The controller keeps events for 30 days, at most the newest million. `iris query` reads them as the table events.
    """
    wanted = []
    if since is not None:
        wanted.append(f"at_ms >= {round(since.timestamp() * 1000)}")
    if user is not None:
        wanted.append(f"{_quoted(user)} IN (user, caller)")
    if kinds:
        wanted.append(f"kind IN ({', '.join(map(_quoted, kinds))})")
    elif not everything:
        wanted.append(f"kind NOT IN ({', '.join(map(_quoted, BOOKKEEPING))})")
    with context.client() as client:
        wanted += [_about(client, about)] if about is not None else []
        found = read_events(client, wanted, f"ORDER BY sequence DESC LIMIT {last}", last)[::-1]
        _print(found, as_json)
        if not (found or follow or as_json):
            say(_nothing(client, kinds))
        newest = found[-1]["sequence"] if found else 0
        while follow:
            time.sleep(_LOOKS_EVERY_S)
            found = read_events(
                client, [*wanted, f"sequence > {newest}"], f"ORDER BY sequence LIMIT {_AT_ONCE}", _AT_ONCE
            )
            _print(found, as_json)
            newest = found[-1]["sequence"] if found else newest


def read_events(client: "IrisClient", wanted: Sequence[str], order: str, max_rows: int) -> list[dict[str, Any]]:
    """Return rows of the table events, with their details as objects.

    Args:
        client: The cluster's client.
        wanted: SQL conditions that all rows meet.
        order: ORDER BY and LIMIT.
        max_rows: Maximum number of rows.
    """
    where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
    found = client.query(f"SELECT * FROM events {where} {order}", max_rows)
    rows: list[dict[str, Any]] = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    return [{**row, "detail": json.loads(row["detail"] or "{}")} for row in rows]


def _about(client: "IrisClient", name: str) -> str:
    names = [name.rstrip("/")] if name.startswith("/") else [name, f"/{client.user}/{name}"]
    below = f"substr(subject, 1, {len(names[-1]) + 1}) = {_quoted(names[-1] + '/')}"
    return f"({' OR '.join([below, *(f'{_quoted(one)} IN (worker_id, subject)' for one in names)])})"


def _nothing(client: "IrisClient", kinds: Sequence[str]) -> str:
    """Return that no event was found, and if kinds were asked for, those that there are."""
    known = client.query("SELECT DISTINCT kind FROM events ORDER BY kind", _AT_ONCE).rows if kinds else ()
    return "no event matches" + (f"; kinds so far: {', '.join(str(kind) for (kind,) in known)}" if kinds else "")


def _print(found: Sequence[dict[str, Any]], as_json: bool) -> None:
    for item in found:
        echo(json.dumps(item, ensure_ascii=False) if as_json else line_of(item))


def line_of(item: dict[str, Any]) -> str:
    """Return the line of an event: its time, kind, subject, worker, reason and caller.

    Args:
        item: A row of the table events, with its detail as an object.
    """
    when = datetime.fromtimestamp(item["at_ms"] / 1000).strftime("%Y-%m-%d %H:%M:%S")
    subject, worker = item["subject"] or "", item["worker_id"] or ""
    detail = dict(item["detail"])
    told = [str(detail.pop(name)) for name in _FIRST if detail.get(name)]
    if item["kind"] == "closed" and not told:
        told = ["open again"]
    for name in detail.keys() & {"band", "max_band"}:
        detail[name] = PriorityBand(detail[name]).word
    told += [f"{name} {detail[name]}" for name in _TOLD if name in detail]
    if detail.get("drain"):
        told.append("drained")
    if item["caller"]:
        told.append(f"by {item['caller']}{' from ' + item['address'] if item['address'] else ''}")
    where = f"{subject} on {worker}" if subject and worker else subject or worker
    return f"{when}  {item['kind']:<18}  {where}  {'; '.join(told)}".rstrip()


@click.command()
@click.option("--since", type=MOMENT, metavar="T", help=_SINCE_HELP)
@click.option("--user", metavar="USER", help="Only what this user, job or worker asked for.")
@click.option(
    "-n", "--last", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Newest N requests."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def audit(context: CliContext, since: datetime | None, user: str | None, last: int, as_json: bool) -> None:
    """Show requests with their callers and addresses: submits, stops, cordons, budgets, tokens, revocations.

    Admins see all requests, other users only their own.
    """
    wanted = [f"at_ms >= {round(since.timestamp() * 1000)}"] if since is not None else []
    wanted += [f"caller = {_quoted(user)}"] if user is not None else []
    where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
    with context.client() as client:
        found = client.query(f"SELECT * FROM audit {where} ORDER BY sequence DESC LIMIT {last}", last)
    items: list[dict[str, Any]] = [dict(zip(found.columns, row, strict=True)) for row in reversed(found.rows)]
    rows = [
        [
            datetime.fromtimestamp(item["at_ms"] / 1000).strftime("%Y-%m-%d %H:%M:%S"),
            *(str(item[name] or "-") for name in ("caller", "address", "action", "subject", "reason")),
        ]
        for item in items
    ]
    if not items and not as_json:
        say("no request matches")
    output(as_json).rows(("when", "who", "from", "what", "subject", "reason"), rows, items)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
