"""Verdicts on the outputs of rerun steps: identical, equal within the tolerance, or different."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from marin.attested.attestation import AttestedFile, AttestedStep
from marin.attested.comparison import compare
from marin.attested.reading import read_files
from rigging.filesystem import read_bytes_or_none
from rigging.filesystem.location import path_in
from rigging.text.quantities import format_size

# Larger files are compared by their digests alone.
_MOST_BYTES: Final = 256 << 20

#: A glob for `{step name}/{file name}`, and the difference allowed between two numbers there.
Tolerance = tuple[str, float]


class Status(StrEnum):
    """The verdict on a file or a step, from the best to the worst."""

    EQUAL = "equal"
    """Equal byte for byte."""
    CLOSE = "close"
    """Equal values, numbers within the tolerance."""
    DIFFERENT = "different"
    """Different values, or a file is missing or new."""
    FAILED = "failed"
    """The step has no output."""


_ORDER: Final = list(Status)


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """The verdict on a file.

    Attributes:
        name: Its path, relative to the output path.
        status: The verdict.
        where: The differences, with both values.
    """

    name: str
    status: Status
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """The verdict on a step.

    Attributes:
        path: Its output path, as in the attestation.
        name: Its name.
        status: The worst verdict on its files, or `failed`.
        error: Why it failed.
        code: The differences of values and code from the attested output.
        files: The verdicts on its files.
    """

    path: str
    name: str
    status: Status
    error: str | None = None
    code: tuple[str, ...] = ()
    files: tuple[FileVerdict, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the step in the format of `marin verify --json`."""
        return asdict(self)

    def lines(self) -> list[tuple[str, Status]]:
        """Return the verdict as readable lines, each with its status."""
        count = f"{len(self.files)} file" + ("" if len(self.files) == 1 else "s")
        lines = [(f"{self.status:<9}  {self.path}  {self.error or count}", self.status)]
        lines += [(f"           made with other values or code: {each}", self.status) for each in self.code]
        for file in self.files:
            lines += [(f"           {file.name}: {each}", file.status) for each in file.where]
        return lines


def tolerance_of(name: str, tolerances: Sequence[Tolerance]) -> float:
    """Return the tolerance for `{step name}/{file name}`: that of the last glob that matches, else 0."""
    return next((value for glob, value in reversed(tolerances) if fnmatch.fnmatchcase(name, glob)), 0.0)


def judge(
    step: AttestedStep,
    attested_path: str,
    new_path: str,
    tolerances: Sequence[Tolerance],
    moved: Mapping[str, str],
    *,
    error: str | None,
    code: Sequence[str],
) -> StepVerdict:
    """Compare a step's new output with the attested one.

    Args:
        step: The attested step.
        attested_path: The path of the attested output, if it still exists, for a comparison of values.
        new_path: The path of the new output.
        tolerances: The tolerances of numbers.
        moved: Paths in new files that only name their own location, and the attested paths for them.
        error: Why the step failed; None on success.
        code: The differences of values and code.
    """
    if error is not None:
        return StepVerdict(step.path, step.name, Status.FAILED, error, tuple(code))
    found = {file.name: file for file in read_files([new_path], new_path)[0]}
    verdicts = []
    for file in step.files:
        new = found.pop(file.name, None)
        if new is None:
            verdicts.append(FileVerdict(file.name, Status.DIFFERENT, ("missing",)))
        elif new == file:
            verdicts.append(FileVerdict(file.name, Status.EQUAL))
        else:
            tolerance = tolerance_of(f"{step.name}/{file.name}", tolerances)
            where = _where(file, new, attested_path, new_path, tolerance, moved)
            verdicts.append(FileVerdict(file.name, Status.DIFFERENT if where else Status.CLOSE, tuple(where)))
    verdicts += [FileVerdict(name, Status.DIFFERENT, ("not attested",)) for name in found]
    worst = max((verdict.status for verdict in verdicts), key=_ORDER.index, default=Status.EQUAL)
    return StepVerdict(step.path, step.name, worst, None, tuple(code), tuple(verdicts))


def _where(
    file: AttestedFile,
    new: AttestedFile,
    attested_path: str,
    new_path: str,
    tolerance: float,
    moved: Mapping[str, str],
) -> list[str]:
    digests = f"sha256 {file.sha256[:12]} -> {new.sha256[:12]}"
    if max(file.bytes, new.bytes) > _MOST_BYTES:
        return [f"{digests}; values of files above {format_size(_MOST_BYTES)} are not compared"]
    after = read_bytes_or_none(path_in(new_path, file.name)) or b""
    if b"\0" not in after:
        for text, original in moved.items():
            after = after.replace(text.encode(), original.encode())
    if _digest(after) == file.sha256:
        return []
    before = read_bytes_or_none(path_in(attested_path, file.name))
    if before is None or _digest(before) != file.sha256:
        why = "is not there" if before is None else "has changed since"
        return [f"{digests}; values are not compared, because the attested file {why}"]
    return compare(file.name, before, after, tolerance)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
