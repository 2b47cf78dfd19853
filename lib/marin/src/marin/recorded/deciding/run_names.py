"""The names of runs, derived from their files, and lookups by name."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from marin.stored_files import shown_names
from rigging.errors import InvalidRequest, NotFound

_INFO: Final = re.compile(r"(?P<stem>.+-[0-9a-f]{6})\.json")
_NOTES: Final = ".notes.json"
_EVENTS: Final = re.compile(r"(?P<stem>.+-[0-9a-f]{6})-(?P<time>\d{8}T\d{6}\.\d{6})Z-(?P<pid>\d+)\.events\.jsonl")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run.

    Attributes:
        id: Its name: the name of its event log, else of its info file, without the extension.
        stem: `{script}-{6 hex}`, shared by runs of equal steps, like the info file.
        info: The name of the info file; None if it is missing.
        events: The name of the event log; None for a run of a release without event logs.
        started: Its start, in seconds since the epoch; None without an event log.
        pid: Its process id on its machine; None without an event log.
        notes: The name of the file with its tags and note; None without one.
    """

    id: str
    stem: str
    info: str | None
    events: str | None
    started: float | None = None
    pid: int | None = None
    notes: str | None = None


def notes_file(run: str) -> str:
    """Return the name of the file with the tags and the note of a run, by the run's name."""
    return f"{run}{_NOTES}"


def runs_of(names: Iterable[str]) -> list[RunFiles]:
    """Return the runs of a directory's files, newest first. Runs without a time come last.

    Args:
        names: The names of the files. Other files are ignored.
    """
    infos: dict[str, str] = {}
    logs: list[tuple[re.Match[str], str]] = []
    notes: set[str] = set()
    for name in names:
        if name.endswith(_NOTES):
            notes.add(name)
            continue
        log = _EVENTS.fullmatch(name) if name.endswith(".jsonl") else None
        info = None if log else _INFO.fullmatch(name)
        if log is not None:
            logs.append((log, name))
        elif info is not None:
            infos[info["stem"]] = name
    found = [
        RunFiles(
            id=run,
            stem=log["stem"],
            info=infos.get(log["stem"]),
            events=name,
            started=_seconds(log["time"]),
            pid=int(log["pid"]),
            notes=notes_file(run) if notes_file(run) in notes else None,
        )
        for log, name in logs
        for run in [name.removesuffix(".events.jsonl")]
    ]
    found.sort(key=lambda run: (-(run.started or 0.0), run.id))
    logged = {run.stem for run in found}
    return found + [
        RunFiles(stem, stem, infos[stem], None, notes=notes_file(stem) if notes_file(stem) in notes else None)
        for stem in sorted(infos)
        if stem not in logged
    ]


def _seconds(text: str) -> float:
    try:
        return datetime.datetime.fromisoformat(f"{text}Z").timestamp()
    except ValueError:  # digits, but no time
        return 0.0


def find_run(runs: Sequence[RunFiles], word: str, where: str, note: Callable[[str], None] | None = None) -> RunFiles:
    """Return the run of that name; for a stem or the beginning of a name, the newest matching run.

    Args:
        runs: All runs, newest first.
        word: The name.
        where: The directory of the runs, for messages.
        note: Called with a note about the other runs if the word begins runs of different steps.

    Raises:
        NotFound: No run has that name. The message suggests the nearest ones.
    """
    word = word.rpartition("/")[2].removesuffix(".events.jsonl").removesuffix(".json")
    for run in runs:
        if run.id == word:
            return run
    for run in runs:
        if run.stem == word:
            return run
    found = [run for run in runs if word and run.id.startswith(word)]
    if not found:
        nearest = nearest_names(word, [run.id for run in runs] + [run.stem for run in runs])
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        raise NotFound(f"no run {word!r} among the {len(runs)} in {where}{hint}")
    others = list(dict.fromkeys(run.stem for run in found if run.stem != found[0].stem))
    if others and note is not None:
        note(
            f"{found[0].id} is the newest of the runs that begin with {word!r}; with other steps: {shown_names(others)}"
        )
    return found[0]


def runs_named(runs: Sequence[RunFiles], word: str, where: str) -> list[RunFiles]:
    """Return the run of that name, or all runs that begin with the word, if they have equal steps.

    Args:
        runs: All runs, newest first.
        word: The name.
        where: The directory of the runs, for messages.

    Raises:
        NotFound: No run has that name. The message suggests the nearest ones.
        InvalidRequest: The word begins runs of different steps.
    """
    newest = find_run(runs, word, where)
    word = word.rpartition("/")[2].removesuffix(".events.jsonl").removesuffix(".json")
    found = [run for run in runs if run.id.startswith(word)] if newest.id != word else [newest]
    stems = list(dict.fromkeys(run.stem for run in found))
    if len(stems) > 1:
        raise InvalidRequest(f"{word!r} begins runs of different steps: {shown_names(stems)}")
    return found


def nearest_names(word: str, names: Iterable[str]) -> list[str]:
    """Return at most three names that are similar to a word."""
    return difflib.get_close_matches(word, list(dict.fromkeys(names)), n=3)
