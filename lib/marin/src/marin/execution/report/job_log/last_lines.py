"""Completes the log of a step whose job's process was killed: `python -m ... JSON`, started by a shell in `own`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

from marin.execution.report.job_log.files import JobLogFiles
from marin.execution.report.job_log.former import settle_former
from marin.execution.report.job_log.lines import OutputLines
from marin.execution.report.job_log.sections import Section, missing_lines
from marin.output_files import LOG_FILE

# What the killed process had started may still print, until it is killed, too.
_QUIET_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 5.0


def main(told: str) -> None:
    """Write what is missing.

    Args:
        told: As `own` says it: the output's descriptor, the files, the part of the log.
    """
    from fray.output.own_output import output_in

    words: dict[str, Any] = json.loads(told)
    source, lines = output_in(words["descriptor"]), OutputLines()
    found: list[str] = []
    deadline = time.monotonic() + _LONGEST_SECONDS
    while pieces := source.read():
        found += lines.feed(pieces)
        if time.monotonic() >= deadline:
            break
        time.sleep(_QUIET_SECONDS)
    found += lines.end()
    files = files_of(words)
    # Of another process that was killed, too: parts stand in the order in which their processes began.
    settle_former(files)
    complete(files, found)


def files_of(words: dict[str, Any]) -> JobLogFiles:
    """Return the files that `own` names."""
    from marin.execution.lease.fencing import LeaseToken

    token = None if words["holder"] is None else LeaseToken(words["output_path"], words["holder"])
    return JobLogFiles(words["output_path"], Section(words["heading"], words["replica"]), words["is_fresh"], token)


def complete(files: JobLogFiles, lines: list[str]) -> bool:
    """Add what a log lacks of a part, of which these are all lines; False when it lacks nothing.

    A part without lines is not there at all.
    """
    log = files.read()
    missing = missing_lines(log, files.section, lines)
    if missing is None or (not lines and files.section.opening not in log):
        return False
    file = files.open(LOG_FILE)
    file.write("".join(f"{line}\n" for line in missing).encode("utf-8", "backslashreplace"))
    file.close(keep=True)
    return True


if __name__ == "__main__":
    main(sys.argv[1])
