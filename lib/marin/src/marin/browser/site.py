"""Common parts of the experiment pages: the storage root, its runs, and page addresses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request

from marin.browser.confined import Confined
from marin.browser.curves import CurveStore
from marin.browser.facts import FactStore
from marin.browser.follow import Pace
from marin.browser.index import RunIndex
from marin.browser.lines import LineIndex
from marin.browser.run_view import RunView, RunViews
from marin.recorded.deciding.run_summary import RunSummary
from rigging.web.pages import query_text

BASE: Final = "/experiments"
_JOB: Final = "job "


@dataclass(slots=True)
class Site:
    """The pages of one storage root.

    Attributes:
        outputs: The storage root.
        index: The recorded runs.
        views: Reads the runs.
        facts: Reads their configs and final metrics for the list.
        curves: Reads the curves of outputs.
        lines: Counts the lines of logs.
        jobs_url: The URL of job pages up to a job's name; "" if there are none.
        pace: The polling intervals of files.
        is_stopping: Set when the server stops, to end streams.
    """

    outputs: Confined
    index: RunIndex
    views: RunViews
    facts: FactStore
    curves: CurveStore
    lines: LineIndex
    jobs_url: str = ""
    pace: Pace = field(default_factory=Pace)
    is_stopping: bool = False

    def run(self, word: str) -> tuple[RunSummary, RunView]:
        """Return the summary and the steps of the run that a name refers to. Raise like `find_run`."""
        [summary] = self.index.summaries([self.index.find(word)])
        return summary, self.views.read(summary.files, summary.state)

    def stop(self) -> None:
        """End all streams."""
        self.is_stopping = True
        self.curves.stop()


def make_site(root: str, runs_at: str, jobs_url: str = "", pace: Pace | None = None) -> Site:
    """Return the site of a storage root.

    Args:
        root: The storage root, absolute, without a trailing slash.
        runs_at: The directory of its run records.
        jobs_url: As in `Site`.
        pace: As in `Site`.
    """
    runs, outputs = Confined(runs_at), Confined(root)
    views = RunViews(runs)
    return Site(
        outputs,
        RunIndex(runs),
        views,
        FactStore(runs, outputs, views),
        CurveStore(outputs),
        LineIndex(outputs),
        jobs_url,
        pace or Pace(),
    )


def address(page: str, /, **query: object) -> str:
    """Return the address of a page. Empty parameters and None are omitted; lists are repeated.

    Args:
        page: The page's name.
        query: The query parameters.
    """
    given = {name: value for name, value in query.items() if value not in (None, "", [], ())}
    return f"{BASE}/{page}" + (f"?{urlencode(given, doseq=True, errors='surrogateescape')}" if given else "")


def asked_path(request: Request) -> str:
    """Return the path in a request, the inverse of `address`; "" if there is none.

    File names on a disk that are not UTF-8 are decoded like `os.fsdecode`.

    Raises:
        InvalidRequest: The path is too long, or has a NUL character.
    """
    query_text(request, "path")
    text: str = request.scope.get("query_string", b"").decode("latin-1")
    # The last one counts, as it does for `query_text`.
    return dict(parse_qsl(text, keep_blank_values=True, errors="surrogateescape")).get("path", "")


def job_address(jobs_url: str, log: str | None) -> str | None:
    """Return the address of the job that ran a step; None if it has no page.

    Args:
        jobs_url: As in `Site`.
        log: The location of the step's log according to its run: `job NAME`.
    """
    if not jobs_url or not log or not log.startswith(_JOB):
        return None
    return jobs_url + quote(log[len(_JOB) :], safe="")
