"""A worker of `map_files`: it takes files from the queue, makes their outputs, and reports the results."""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fray.actor import ActorHandle
from fray.errors import ActorLost
from marin.run.mapping.outputs import OutputWriter
from marin.run.mapping.state import Assignment, FileReport, FileStatus, FileTask
from rigging.errors import Conflict, JobFailed, Unavailable
from rigging.process.calls import call_to_end

FileFunction = Callable[[str, str], object]

_MOST_ERROR_CHARACTERS = 1000
_MOST_TRACE_CHARACTERS = 4000
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5


class WorkerOptions(NamedTuple):
    """The options of a worker. It returns unstarted files to the queue after `batch_seconds`."""

    queue: str
    name: str
    batch_seconds: float


def run_worker(queue: ActorHandle, options: WorkerOptions, fn: FileFunction) -> None:
    """Make files until the queue ends the worker or is gone.

    Args:
        queue: The queue.
        options: The worker's options.
        fn: The function that makes a file.

    Raises:
        Unavailable: The queue never answered.
    """
    life = uuid.uuid4().hex
    reports: list[FileReport] = []
    seconds = 0.0
    pause = _FIRST_PAUSE
    answered = False
    with OutputWriter() as writer:
        while True:
            try:
                assignment: Assignment = queue.exchange(options.queue, options.name, life, reports, seconds)
            except (ActorLost, Conflict) as error:
                if not answered:
                    raise Unavailable(f"this worker cannot reach the process that called map_files: {error}") from error
                # The driver has ended, or starts anew with other workers.
                return
            answered = True
            if assignment.stop:
                return
            began = time.monotonic()
            reports = _work_off(assignment.tasks, began + options.batch_seconds, fn, writer)
            seconds = time.monotonic() - began
            pause = _FIRST_PAUSE if reports else min(2 * pause, _LONGEST_PAUSE)
            if not reports:
                time.sleep(pause)


def _work_off(tasks: Sequence[FileTask], deadline: float, fn: FileFunction, writer: OutputWriter) -> list[FileReport]:
    reports: list[FileReport] = []
    for task in tasks:
        if reports and time.monotonic() > deadline:
            break
        reports.append(make_file(task, fn, writer))
    return reports


def make_file(task: FileTask, fn: FileFunction, writer: OutputWriter) -> FileReport:
    """Make one output unless it exists, and return the report.

    Args:
        task: The file to make.
        fn: The function that makes it.
        writer: Gives the function a path to write to.
    """
    try:
        if writer.exists(task.output):
            return FileReport(task.number, FileStatus.EXISTED)
        with writer.writing(task.output) as place:
            if call_to_end(fn, task.input, place) is False:
                raise JobFailed("the function returned False")
    except (Exception, SystemExit) as error:
        summary = "".join(traceback.format_exception_only(error)).strip()[:_MOST_ERROR_CHARACTERS]
        trace = "".join(traceback.format_exception(error))[-_MOST_TRACE_CHARACTERS:]
        return FileReport(task.number, FileStatus.FAILED, summary, trace)
    return FileReport(task.number, FileStatus.SUCCEEDED)
