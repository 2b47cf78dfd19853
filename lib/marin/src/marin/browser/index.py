"""The list of runs below a storage root: cached in memory, and refreshed on request."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from marin.browser.confined import Confined
from marin.recorded.deciding.run_names import RunFiles, find_run, runs_of
from marin.recorded.deciding.run_notes import RunNotes, parse_notes
from marin.recorded.deciding.run_summary import ENDED, RunSummary
from marin.recorded.reading.runs import summaries
from marin.stored_files import names_in
from rigging.errors import MarinError

_REMOTE_SECONDS: Final = 5.0
_BATCH: Final = 500
_MOST_NOTES: Final = 1 << 16


class RunIndex:
    """The runs recorded in a directory. Threads may share it.

    Args:
        place: The directory.
        host: This machine's name, as in run records.
        now: Returns the current time in seconds.
    """

    def __init__(self, place: Confined, host: str | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        self._host = os.uname().nodename if host is None else host
        self._now = now
        self._lock = threading.Lock()
        self._runs: list[RunFiles] = []
        self._listed: list[str] = []
        self._seen: object = None
        self._ended: dict[str, RunSummary] = {}
        self._notes: dict[str, tuple[object, RunNotes]] = {}

    def runs(self) -> list[RunFiles]:
        """Return all runs, newest first."""
        with self._lock:
            mark = self._mark()
            if mark != self._seen:
                names = self._names()
                # Within a second of a change the directory is listed again and again; mostly nothing is new.
                if names != self._listed:
                    self._runs, self._listed = runs_of(names), names
                self._seen = mark
            return self._runs

    def _mark(self) -> object:
        """Return a value that changes when a run is added: on disks the directory's time, else the clock."""
        if not self.place.is_local:
            return int(self._now() / _REMOTE_SECONDS)
        try:
            found = os.stat(self.place.root)
        except (FileNotFoundError, NotADirectoryError):
            return None
        # A file that comes within the clock's step of the listing would not change the time.
        recent = time.time() - found.st_mtime < 1
        return (found.st_ino, found.st_mtime_ns, self._now() if recent else 0)

    def _names(self) -> list[str]:
        if not self.place.is_local:
            return names_in(self.place.root)
        try:
            found = list(os.scandir(self.place.root))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [item.name for item in found if not item.is_symlink()]

    def find(self, word: str) -> RunFiles:
        """Return the run that a name refers to (see `find_run`)."""
        return find_run(self.runs(), word, self.place.root)

    def summaries(self, runs: Sequence[RunFiles]) -> list[RunSummary]:
        """Return the summaries of runs. Those of ended runs are read once."""
        with self._lock:
            known = dict(self._ended)
        new = [run for run in runs if known.get(run.id) is None or known[run.id].files != run]
        for start in range(0, len(new), _BATCH):
            for summary in summaries(self.place.root, new[start : start + _BATCH], self._host):
                known[summary.files.id] = summary
                if summary.state in ENDED:
                    with self._lock:
                        self._ended[summary.files.id] = summary
        return [known[run.id] for run in runs]

    def notes(self, runs: Sequence[RunFiles]) -> dict[str, RunNotes]:
        """Return the tags and notes of the runs that have any, by name. A file is read when it has changed."""
        found: dict[str, RunNotes] = {}
        for run in runs:
            if run.notes is None:
                continue
            try:
                entry = self.place.entry(run.notes)
                mark, (seen, notes) = (entry.size, entry.modified), self._notes.get(run.id, (None, RunNotes()))
                if mark != seen:
                    notes = parse_notes(self.place.read(run.notes, 0, _MOST_NOTES))
                    self._notes[run.id] = (mark, notes)
            except MarinError:  # removed meanwhile
                continue
            found[run.id] = notes
        return found

    def matching(self, text: str, state: str, tag: str = "") -> list[RunFiles]:
        """Return the runs that match a search, newest first.

        Args:
            text: Words that must all occur in its name, user, host, job, description, tags or note, ignoring case.
            state: Their state; "" for any.
            tag: A tag that they have; "" for any.
        """
        runs = self.runs()
        words = text.lower().split()
        notes = self.notes(runs) if words or tag else {}
        if tag:
            runs = [run for run in runs if run.id in notes and tag in notes[run.id].tags]
        if not words and not state:
            return runs
        found = []
        for summary in self.summaries(runs):
            said = notes.get(summary.files.id, RunNotes())
            told = f"{summary.files.id} {summary.user} {summary.host} {summary.job} {summary.description or ''}".lower()
            told += f" {' '.join(said.tags)} {said.note}".lower()
            if (not state or summary.state == state) and all(word in told for word in words):
                found.append(summary.files)
        return found
