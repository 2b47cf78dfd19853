"""Lines of the executor's own in the log of a step."""

from __future__ import annotations

import datetime
import os

from marin.execution.report.events import describe_error
from rigging.redaction import redact_string
from rigging.text.printable import printable


def heading(attempt: int, began: float) -> str:
    """Return `=== attempt {number}, {time}, {host}, process {id}`, of this process.

    Args:
        attempt: The attempt's number in its run, from 1.
        began: When it began, in seconds since the epoch.
    """
    when = datetime.datetime.fromtimestamp(began).astimezone().isoformat(timespec="milliseconds")
    return f"=== attempt {attempt}, {when}, {os.uname().nodename}, process {os.getpid()}"


def failed_line(error: BaseException) -> str:
    """Return `=== failed: ...`, with the first line of an error; the error file has all of it."""
    told = printable(redact_string(describe_error(error)))
    return f"=== failed: {told.partition(chr(10))[0]}"
