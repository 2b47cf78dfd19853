"""The parts of former processes in a log on a disk: each is to be whole before the next one begins."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import IO, Final

from marin.execution.report.job_log.files import JobLogFiles
from marin.execution.report.job_log.sections import LOST, Section, note_open
from marin.output_files import LOG_FILE
from rigging.filesystem import local_path

# Who completes the part of a process that was killed starts an interpreter first.
CLOSING_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.05


def settle_former(files: JobLogFiles, seconds: float = CLOSING_SECONDS) -> None:
    """Wait until the parts of former processes of a replica are closed; mark those that stay open.

    A log at an object store is written as a whole, so that nothing stands between its parts: nothing is waited for.

    Args:
        files: The files and the part of the process that comes next.
        seconds: How long the parts are waited for.

    Raises:
        OSError: The log cannot be written.
    """
    local = local_path(files.output_path)
    if local is None:
        return
    try:
        file = open(os.path.join(local, LOG_FILE), "rb")  # noqa: SIM115
    except FileNotFoundError:
        return
    own, former = files.section, dict[str, Section]()
    deadline = time.monotonic() + seconds
    with file:
        while True:
            for line in _whole_lines(file):
                note_open(former, line, own.replica)
            if own.closing in former:
                # What came after it began waits for it in turn.
                former = dict(itertools.takewhile(lambda each: each[0] != own.closing, former.items()))
            if not former:
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE_SECONDS)
    lost = files.open(LOG_FILE)
    for section in former.values():
        lost.write(f"{section.tag}{LOST}\n{section.closing}\n".encode())
    lost.close(keep=True)


def _whole_lines(file: IO[bytes]) -> Iterator[str]:
    """The lines that may be a part's first or last, from where the file was read to; not one that is still written."""
    for line in iter(file.readline, b""):
        if not line.endswith(b"\n"):
            file.seek(-len(line), os.SEEK_CUR)
            return
        if line.startswith((b"=== ", b"[")):
            yield line[:-1].decode("utf-8", "replace")
