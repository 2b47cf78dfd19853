"""Find the outputs that no run refers to. Keep doubtful outputs, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from marin.output_files import ASIDE_SUFFIX, INFO_FILE, LOCK_FILE
from marin.stored_files import StoredFile

_BETWEEN: Final = re.compile(r"[\s'\"=,;|<>(){}]+")
_STORED: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_LONGEST: Final = 4096
_ROOT: Final = "\0"


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """The files of an output.

    Attributes:
        name: Its path below the storage root.
        size: The total size of its files in bytes.
        count: The number of its files.
        modified: The newest modification time, in seconds since the epoch; None if storage does not report one.
        is_leased: Whether there is a lock file.
    """

    name: str
    size: int
    count: int
    modified: float | None
    is_leased: bool


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """An output, and the content of its files.

    Attributes:
        files: Its files.
        status: Its status, or None.
        info: Its `.executor_info`; None if that is damaged.
    """

    files: OutputFiles
    status: str | None
    info: Mapping[str, Any] | None

    @property
    def is_being_made(self) -> bool:
        """Whether a step is writing it, or was killed."""
        return self.files.is_leased or self.status == "RUNNING"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on an output.

    Attributes:
        output: The output.
        kept: Why it is kept; None if no run refers to it.
        added: For an output that no run refers to: the files newer than its end (`files_added`).
    """

    output: OutputFacts
    kept: str | None
    added: Sequence[str] = ()

    def to_json(self, root: str) -> dict[str, Any]:
        """Return the output as an entry of `marin gc --json`."""
        files = self.output.files
        return {
            "path": f"{root}/{files.name}",
            "bytes": files.size,
            "files": files.count,
            "modified": files.modified,
            "status": self.output.status,
            "kept": self.kept,
            "added": list(self.added),
        }


@dataclass(frozen=True, slots=True)
class Found:
    """The result of `find_garbage`.

    Attributes:
        verdicts: The verdict on every output below the storage root.
        runs: The number of runs' info files.
        aged: The number of info files that are too old to count.
        damaged: Unreadable info files, whose references are unknown.
    """

    verdicts: list[Verdict]
    runs: int
    aged: int
    damaged: list[str]

    @property
    def garbage(self) -> list[Verdict]:
        """Return the outputs that no run refers to."""
        return [verdict for verdict in self.verdicts if verdict.kept is None]


def outputs_of(files: Iterable[StoredFile], skipped: Sequence[str]) -> list[OutputFiles]:
    """Return the outputs that files belong to: the directories with an info file. They may be nested.

    Args:
        files: All files below the storage root.
        skipped: Directories without outputs (temporary data, run records).
    """
    sizes: dict[str, tuple[int, int, float | None]] = {}
    marked: set[str] = set()
    leased: set[str] = set()
    for file in files:
        directory, _, name = file.name.rpartition("/")
        if not directory or any(_is_in(directory, place) for place in skipped):
            continue
        size, count, newest = sizes.get(directory, (0, 0, 0.0))
        # A time that is not told stays unknown for the whole.
        latest = None if newest is None or file.modified is None else max(newest, file.modified)
        sizes[directory] = (size + file.size, count + 1, latest)
        if name == INFO_FILE:
            marked.add(directory)
        elif name == LOCK_FILE:
            leased.add(directory)
    totals: dict[str, tuple[int, int, float | None]] = dict.fromkeys(marked, (0, 0, 0.0))
    busy: set[str] = set()
    for directory, (size, count, newest) in sizes.items():
        for place in _and_above(directory):
            if place in totals:
                before = totals[place]
                latest = None if before[2] is None or newest is None else max(before[2], newest)
                totals[place] = (before[0] + size, before[1] + count, latest)
    for directory in leased:
        busy.update(place for place in _and_above(directory) if place in totals)
    return [OutputFiles(name, *totals[name], name in busy) for name in sorted(totals)]


def with_asides(outputs: Sequence[OutputFacts], root: str) -> list[OutputFacts]:
    """Merge outputs with the copies that `--force` has set aside.

    Args:
        outputs: All outputs below the storage root.
        root: The storage root.
    """
    found = {output.files.name: output for output in outputs}
    for output in outputs:
        name = output.files.name.removesuffix(ASIDE_SUFFIX)
        if name == output.files.name or not _is_made_at(output.info, name, root):
            continue
        aside = found.pop(output.files.name)
        there = found.get(name)
        if there is None:  # a run was killed before the next attempt wrote its info file
            found[name] = replace(aside, files=replace(aside.files, name=name), status=None)
            continue
        newest = (there.files.modified, aside.files.modified)
        files = replace(
            there.files,
            size=there.files.size + aside.files.size,
            count=there.files.count + aside.files.count,
            modified=None if None in newest else max(filter(None, newest), default=0.0),
        )
        found[name] = replace(there, files=files)
    return [found[name] for name in sorted(found)]


def references(value: Any, roots: Iterable[str], outputs: Iterable[OutputFacts]) -> set[str]:
    """Return every path below a storage root that the texts of a JSON value may refer to, and its parents.

    It includes uncertain references: relative paths, paths in command lines, and paths in other buckets, which a mirror
    may read.

    Args:
        value: The content of an info file.
        roots: The storage root, and its path when the file was written: the root may have moved.
        outputs: All outputs below it.
    """
    found: set[str] = set()
    for root in {root.removeprefix("file://").rstrip("/") for root in roots}:
        # A root or a name with a space is no word of a text.
        texts = [text.replace(f"{root}/", f"{_ROOT}/") for text in _texts(value)]
        for text in texts:
            if len(text) > _LONGEST and "/" not in text:
                continue
            for word in _BETWEEN.split(text):
                found.update(_and_above(relative(word, _ROOT)))
        joined = "\n".join(texts)
        for output in outputs:
            if _BETWEEN.search(output.files.name) and output.files.name in joined:
                found.update(_and_above(output.files.name))
    return found


def relative(path: str, root: str) -> str:
    """Return a path relative to a storage root: without the root, or without its own bucket."""
    root = root.removeprefix("file://")
    for start in (f"{root}/", f"file://{root}/"):
        if path.startswith(start):
            return path.removeprefix(start).strip("/")
    scheme = _STORED.match(path)
    if scheme is not None:
        rest = path[scheme.end() :]
        return rest.strip("/") if scheme[0] == "mirror://" else rest.partition("/")[2].strip("/")
    return path.strip("/")


def judge_outputs(
    outputs: Sequence[OutputFacts], referred: set[str], root: str, written_before: float
) -> list[Verdict]:
    """Return for each output whether it is kept.

    References in a kept output's own info file are kept, too.

    Args:
        outputs: All outputs below the storage root.
        referred: The paths that runs refer to (`references`).
        root: The storage root.
        written_before: Keep outputs written after this time, in seconds since the epoch.
    """
    known = set(referred)
    kept: dict[str, str] = {}
    pending = list(outputs)
    while True:
        found = [(output, _reason(output, known, root, written_before)) for output in pending]
        new = [output for output, reason in found if reason is not None]
        if not new:
            break
        kept.update({output.files.name: reason for output, reason in found if reason is not None})
        for output in new:
            made_at = str((output.info or {}).get("output_path", "")).removesuffix(f"/{output.files.name}")
            known |= references(output.info, (root, made_at), outputs)
        pending = [output for output, reason in found if reason is None]
    above = {place for name in kept for place in _and_above(name)}
    verdicts = []
    for output in outputs:
        name = output.files.name
        reason = kept.get(name)
        if reason is None and name in above:
            reason = "an output within it is kept"
        if reason is None and any(place in kept for place in _and_above(name)):
            reason = "it is in an output that is kept"
        verdicts.append(Verdict(output, reason))
    return verdicts


def _reason(output: OutputFacts, referred: set[str], root: str, written_before: float) -> str | None:
    files, info = output.files, output.info
    if files.name in referred:
        return "a run, or an output that is kept, refers to it"
    if info is None:
        return "its info file is damaged"
    if not _is_made_at(info, files.name, root):
        return "it was made under another storage root"
    if info.get("executor_version") == "step_runner":
        return "no runs of bare StepSpecs are recorded"
    if output.is_being_made:
        return "a step is writing it"
    if files.modified is None or files.modified >= written_before:
        return "it is too young" if files.modified is not None else "storage does not report its age"
    return None


def _is_made_at(info: Mapping[str, Any] | None, name: str, root: str) -> bool:
    made_at = str((info or {}).get("output_path", "")).rstrip("/").removeprefix("file://")
    return made_at == f"{root.removeprefix('file://')}/{name}"


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            pending += item


def _and_above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def _is_in(directory: str, place: str) -> bool:
    return directory == place or directory.startswith(f"{place}/")
