"""One attempt at a bare step spec: its lease, its status, its info file, its function, its result."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from marin.execution.config.prefix import prefix_or_default
from marin.execution.config.step import ExecutorStep
from marin.execution.jobs.placement import LiveJobs, bind
from marin.execution.jobs.remote import RemoteCallable, function_name
from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import StepAlreadyDone
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.lease.step_lease import end_failed, set_step_lease
from marin.execution.record.function_source import function_source
from marin.execution.record.info import STEP_INFO_FILE, plain
from marin.execution.record.output_state import read_infos
from marin.execution.record.provenance import parse_info, source_differences
from marin.execution.record.redacted import redacted
from marin.execution.report.error_text import log_failure
from marin.execution.report.events import RunEvent, StepEnd
from marin.execution.report.progress import StepProgress, set_step_progress
from marin.execution.run.interruption import AtWork
from marin.execution.step_spec import StepSpec
from marin.execution.version.canonical import to_bytes
from marin.execution.version.differences import Difference
from rigging.distributed_lock import LeaseLostError

logger = logging.getLogger(__name__)

#: What `.executor_info` says about who wrote it.
EXECUTOR_VERSION = "step_runner"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """How an attempt ended.

    Attributes:
        path: The output path.
        end: How.
        seconds: How long the function took.
        error: Why it failed.
        differences: Of an output that was there: code that made it and differs from the spec's.
        queued_seconds: How long its job waited before.
    """

    path: str
    end: StepEnd
    seconds: float = 0.0
    error: BaseException | None = None
    differences: Sequence[Difference] = ()
    queued_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the output is there."""
        return self.end in (StepEnd.SUCCEEDED, StepEnd.CACHED)


class Attempt:
    """One attempt at a spec whose deps are done.

    Args:
        spec: The spec.
        force_run_failed: Whether it is tried again when it failed before.
        jobs: Where its job is kept meanwhile, if it is one.
        keeper: Keeps its lease.

    Attributes:
        at_work: What the end of an interrupted run needs to know of it; None while it has no lease.
    """

    def __init__(self, spec: StepSpec, force_run_failed: bool, jobs: LiveJobs, keeper: LeaseKeeper) -> None:
        self._spec = spec
        self._path = spec.output_path
        self._force_run_failed = force_run_failed
        self._jobs = jobs
        self._keeper = keeper
        self._lease = open_step_lease(self._path, spec.name)
        self._abandoned = False
        self._ended = threading.Event()
        self._go_on = threading.Event()
        self.at_work: AtWork | None = None

    def run(self, tell: Callable[[RunEvent], None] = lambda _: None) -> AttemptResult:
        """Make the output, waiting for whoever else is making it, and tell of it; never raises."""
        progress = StepProgress(self._spec.name, self._path, tell)
        try:
            self._take_lease()
            progress = StepProgress(self._spec.name, self._path, tell)
            self._make(progress)
        except StepAlreadyDone:
            return AttemptResult(self._path, StepEnd.CACHED)
        except LeaseLostError as error:
            return AttemptResult(
                self._path, StepEnd.LOST, progress.seconds, error, queued_seconds=progress.queued_seconds
            )
        # A step may raise anything, SystemExit and KeyboardInterrupt included; all of it is that step's failure.
        except BaseException as error:
            log_failure(self._spec.name, self._path, error)
            return AttemptResult(
                self._path, StepEnd.FAILED, progress.seconds, error, queued_seconds=progress.queued_seconds
            )
        finally:
            self._keeper.drop(self._lease)
            self._ended.set()
        return AttemptResult(self._path, StepEnd.SUCCEEDED, progress.seconds, queued_seconds=progress.queued_seconds)

    def take_log(self) -> str | None:
        """Where the log of the attempt's job is; None when there was no job, and when asked again."""
        return self._jobs.take_log(self._path)

    def stop_waiting(self) -> None:
        """Wait no longer for another run's attempt, and do not begin: this run was interrupted."""
        self._abandoned = True
        self._go_on.set()

    def wait_for_end(self, seconds: float) -> bool:
        """Wait so long for the attempt to end; whether it has."""
        return self._ended.wait(seconds)

    def _take_lease(self) -> None:
        while not self._lease.begin(force_run_failed=self._force_run_failed):
            self._go_on.clear()
            self._keeper.watch(self._lease, self._go_on.set)
            if self._abandoned:
                self._go_on.set()
            self._go_on.wait()
            if self._abandoned:
                raise LeaseLostError(f"step {self._spec.name}: the run was interrupted while it waited for another")
        self._keeper.keep(self._lease, lambda: self._jobs.terminate_one(self._path))
        in_process = self._spec.resources is None and not isinstance(self._spec.fn, RemoteCallable)
        self.at_work = AtWork(self._lease, threading.get_native_id(), in_process)
        if self._abandoned:
            self._lease.interrupt()

    def _make(self, progress: StepProgress) -> None:
        try:
            self._lease.check()
            self._lease.write(STEP_INFO_FILE, to_bytes(spec_info(self._spec)))
            if self.at_work is not None and self.at_work.in_process:
                progress.started()
            # The function sees its own lease, and nobody else does.
            contextvars.copy_context().run(self._call, progress)
        except BaseException as error:
            end_failed(self._lease, error)
            raise
        self._lease.end(STATUS_SUCCESS)

    def _call(self, progress: StepProgress) -> None:
        set_step_progress(progress)
        spec = self._spec
        set_step_lease(self._lease)
        step = ExecutorStep[str](spec.name, spec.fn, self._path, resources=spec.resources)
        bind(step, self._path, self._path, prefix_or_default(spec.output_path_prefix), self._jobs)()


def spec_info(spec: StepSpec) -> dict[str, Any]:
    """The content of a bare spec's `.executor_info`."""
    return {
        "name": spec.name,
        "fn_name": function_name(spec.fn),
        "config": redacted(plain(dict(spec.hash_attrs))),
        "description": None,
        "override_output_path": spec.override_output_path,
        "version": {},
        "dependencies": spec.dep_paths,
        "output_path": spec.output_path,
        "executor_version": EXECUTOR_VERSION,
        "source": function_source(spec.fn),
    }


def spec_differences(spec: StepSpec, output_path: str) -> list[Difference]:
    """What differs between the code that made a spec's output and the spec's; nothing where that was not recorded."""
    there = parse_info(read_infos([output_path])[output_path])
    return [] if there is None else source_differences(there, function_source(spec.fn))
