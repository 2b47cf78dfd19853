"""The result of `map_files`, and its errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from marin.run.mapping.state import FileStatus, FinishedFile
from rigging.errors import JobFailed

_KEPT_FAILURES = 100
_TOLD_FAILURES = 3


class FailedFile(NamedTuple):
    """A file whose output was not made, and the reason."""

    input: str
    output: str
    error: str


@dataclass(slots=True)
class MapFilesResult:
    """The number of files by result, and the first 100 failed ones (the manifest has all).

    Args:
        total: The number of files so far.
        succeeded: Outputs that this run made.
        existed: Outputs that already existed.
        failed: Outputs that were not made.
    """

    total: int = 0
    succeeded: int = 0
    existed: int = 0
    failed: int = 0
    failures: list[FailedFile] = field(default_factory=list)
    manifest: str | None = None

    @property
    def finished(self) -> int:
        """The number of finished files."""
        return self.succeeded + self.existed + self.failed

    def count(self, file: FinishedFile) -> None:
        """Count one more finished file."""
        if file.status is FileStatus.SUCCEEDED:
            self.succeeded += 1
        elif file.status is FileStatus.EXISTED:
            self.existed += 1
        else:
            self.failed += 1
            if len(self.failures) < _KEPT_FAILURES:
                self.failures.append(FailedFile(file.task.input, file.task.output, file.error))

    def __str__(self) -> str:
        return (
            f"{self.finished} of {self.total} files: {self.succeeded} made, {self.existed} already existed, "
            f"{self.failed} failed"
        )


class FilesFailed(JobFailed):
    """Some outputs were not made. `result` has the details."""

    def __init__(self, message: str, result: MapFilesResult) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[object, ...]:
        return FilesFailed, (str(self), self.result)


def failure_of(result: MapFilesResult) -> FilesFailed:
    """Return the error to raise for a result with failures."""
    lines = [f"{failure.input!r}: {failure.error}" for failure in result.failures[:_TOLD_FAILURES]]
    more = result.failed - len(lines)
    if more > 0:
        lines.append(f"and {more} more")
    if result.manifest is not None:
        lines.append(f"all are in {result.manifest}")
    return FilesFailed(f"map_files: {result.failed} of {result.total} files failed: " + "; ".join(lines), result)
