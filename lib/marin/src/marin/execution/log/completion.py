"""Complete the parts of killed processes of steps' jobs, in the order in which they started.

`python -m marin.execution.log.completion WORDS` does this in a separate process, started by a shell (`own`).
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import time
from typing import Final

from marin.execution.log.job_files import JobLogFiles
from marin.execution.log.lines import OutputLines
from marin.execution.log.sections import LOST, Section, missing_lines, open_sections
from marin.output_files import LOG_FILE
from rigging.filesystem import local_path
from rigging.filesystem.location import path_in

# Who completes the part of a process that was killed starts an interpreter first.
CLOSING_SECONDS: Final = 10.0
# What the killed process had started may still print, until it is killed, too.
_QUIET_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 5.0


def settle_former(files: JobLogFiles, seconds: float = CLOSING_SECONDS) -> None:
    """Wait until the parts of a replica's earlier processes are closed, and mark those that stay open.

    A log in an object store is written as a whole, so this does not wait.

    Args:
        files: The files, and the part of the next process.
        seconds: How long to wait for the parts.

    Raises:
        OSError: The log cannot be written.
    """
    former = files.look_until(lambda: _former(files), lambda former: not former, seconds)
    if former:
        lost = files.open(LOG_FILE)
        lost.write("".join(f"{each.tag}{LOST}\n{each.closing}\n" for each in former).encode())
        lost.close(keep=True)


def _former(files: JobLogFiles) -> list[Section]:
    """Return the open parts before the next one. A later process waits for the next one."""
    local = local_path(path_in(files.output_path, LOG_FILE))
    if local is None or not os.path.exists(local):
        return []
    with open(local, "rb") as file:  # of which there may be more than fits into memory
        marked = b"".join(line for line in file if b"=== " in line)
    found = open_sections(marked.decode("utf-8", "replace"), files.section.replica)
    return list(itertools.takewhile(lambda each: each != files.section, found))


def complete(files: JobLogFiles, lines: list[str]) -> bool:
    """Add the missing lines of a part to a log, given all its lines. Return False if none is missing.

    A part without lines does not appear at all.
    """
    log = files.read()
    missing = missing_lines(log, files.section, lines)
    if missing is None or (not lines and files.section.opening not in log):
        return False
    file = files.open(LOG_FILE)
    file.write("".join(f"{line}\n" for line in missing).encode("utf-8", "backslashreplace"))
    file.close(keep=True)
    return True


def words_for(descriptor: int, files: JobLogFiles) -> str:
    """Return the arguments of `main`: the descriptor of a process's output, and the files and part of its log."""
    return pickle.dumps((descriptor, files)).hex()


def main(told: str) -> None:
    """Complete a part, as described by the arguments.

    Args:
        told: The arguments from `words_for`.
    """
    from fray.output.own_output import output_in

    descriptor, files = pickle.loads(bytes.fromhex(told))  # noqa: S301 - the words of this process's parent
    source, lines = output_in(descriptor), OutputLines()
    found: list[str] = []
    deadline = time.monotonic() + _LONGEST_SECONDS
    while pieces := source.read():
        found += lines.feed(pieces)
        if time.monotonic() >= deadline:
            break
        time.sleep(_QUIET_SECONDS)
    found += lines.end()
    # Of another process that was killed, too: parts stand in the order in which their processes began.
    settle_former(files)
    complete(files, found)


if __name__ == "__main__":
    main(sys.argv[1])
