"""Common parts of the experiment pages: the storage root, its runs, and the addresses of pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request

from marin.browser.confined import Confined
from marin.browser.follow import Pace
from marin.browser.index import RunIndex
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
        index: The runs that are recorded.
        views: Reads them.
        jobs_url: Where the page of a job is, up to its name; "" when no jobs can be looked at.
        pace: How often files are looked at.
        is_stopping: Set when the server stops, so that streams end.
    """

    outputs: Confined
    index: RunIndex
    views: RunViews
    jobs_url: str = ""
    pace: Pace = field(default_factory=Pace)
    is_stopping: bool = False

    def run(self, word: str) -> tuple[RunSummary, RunView]:
        """Return the run that a word means, in short and with its steps; see `find_run` for the errors."""
        [summary] = self.index.summaries([self.index.find(word)])
        return summary, self.views.read(summary.files, summary.state)

    def stop(self) -> None:
        """End all streams."""
        self.is_stopping = True


def make_site(root: str, runs_at: str, jobs_url: str = "", pace: Pace | None = None) -> Site:
    """Return the site of a storage root.

    Args:
        root: The storage root, absolute, without a slash at its end.
        runs_at: The directory in which its runs are recorded.
        jobs_url: As `Site` has it.
        pace: As `Site` has it.
    """
    runs = Confined(runs_at)
    return Site(Confined(root), RunIndex(runs), RunViews(runs), jobs_url, pace or Pace())


def address(page: str, /, **query: object) -> str:
    """Return the address of a page; what is empty or None is left out.

    Args:
        page: The page's name.
        query: What it is about.
    """
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{BASE}/{page}" + (f"?{urlencode(given, errors='surrogateescape')}" if given else "")


def asked_path(request: Request) -> str:
    """Return the path that a request names, "" when it names none: the way back from `address`.

    Names of files on a disk are bytes, and need be no UTF-8: those of others are kept as `os.fsdecode` has them.

    Raises:
        InvalidRequest: It is longer than a path can be, or has a NUL character.
    """
    query_text(request, "path")
    text: str = request.scope.get("query_string", b"").decode("latin-1")
    # The last one counts, as it does for `query_text`.
    return dict(parse_qsl(text, keep_blank_values=True, errors="surrogateescape")).get("path", "")


def job_address(jobs_url: str, log: str | None) -> str | None:
    """Return the address of the job that ran a step; None when there is no page of it.

    Args:
        jobs_url: As `Site` has it.
        log: Where the step's log is, as its run says: `job NAME`.
    """
    if not jobs_url or not log or not log.startswith(_JOB):
        return None
    return jobs_url + quote(log[len(_JOB) :], safe="")
