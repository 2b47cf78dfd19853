"""One attempt at a bare step spec: its lease, its status, its info file, its function, its result."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marin.execution.executor_step_status import (
    STATUS_FAILED,
    STATUS_RUNNING,
    STATUS_SUCCESS,
    LockedStatus,
    StepAlreadyDone,
    step_lock,
)
from marin.execution.info import STEP_INFO_FILE, plain, to_bytes
from marin.execution.paths import prefix_or_default
from marin.execution.placement import LiveJobs, bind, remote_function
from marin.execution.remote import function_name
from marin.execution.run_events import StepEnd
from marin.execution.step import ExecutorStep
from marin.execution.step_call import call_step
from marin.execution.step_spec import StepSpec
from rigging.distributed_lock import LeaseLostError
from rigging.errors import MarinError
from rigging.filesystem import write_bytes_atomic

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
    """

    path: str
    end: StepEnd
    seconds: float = 0.0
    error: BaseException | None = None

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
    """

    def __init__(self, spec: StepSpec, force_run_failed: bool, jobs: LiveJobs) -> None:
        self._spec = spec
        self._force_run_failed = force_run_failed
        self._jobs = jobs
        self._guard = threading.Lock()
        self._held: LockedStatus | None = None

    def run(self, on_start: Callable[[], None] = lambda: None) -> AttemptResult:
        """Make the output, waiting for whoever else is making it; never raises."""
        path = self._spec.output_path
        started = time.monotonic()
        try:
            with step_lock(path, self._spec.name, force_run_failed=self._force_run_failed) as status:
                self._hold(status)
                try:
                    started = time.monotonic()
                    self._make(status, on_start)
                finally:
                    self._hold(None)
        except StepAlreadyDone:
            return AttemptResult(path, StepEnd.CACHED)
        except LeaseLostError as error:
            return AttemptResult(path, StepEnd.LOST, time.monotonic() - started, error)
        # A step may raise anything, SystemExit and KeyboardInterrupt included; all of it is that step's failure.
        except BaseException as error:
            logger.error("step %s failed", self._spec.name, exc_info=True)
            return AttemptResult(path, StepEnd.FAILED, time.monotonic() - started, error)
        return AttemptResult(path, StepEnd.SUCCEEDED, time.monotonic() - started)

    def abandon(self) -> None:
        """Leave a true status behind when the run is interrupted; what the function still does counts no more."""
        with self._guard:
            status = self._held
        if status is None:
            return
        logger.warning("interrupted: %s is marked FAILED", status.output_path)
        try:
            status.write_status(STATUS_FAILED)
        except (OSError, MarinError) as error:
            logger.warning("could not write the status of %s: %s", status.output_path, error)
        status.held.lost.set()  # the thread that is still at work must not write SUCCESS any more
        status.held.lock.release()

    def _hold(self, status: LockedStatus | None) -> None:
        with self._guard:
            self._held = status

    def _make(self, status: LockedStatus, on_start: Callable[[], None]) -> None:
        spec, path = self._spec, status.output_path
        status.write_status(STATUS_RUNNING)
        try:
            write_bytes_atomic(os.path.join(path, STEP_INFO_FILE), to_bytes(spec_info(spec)))
            on_start()
            step = ExecutorStep[str](spec.name, spec.fn, path, resources=spec.resources)
            if spec.fn is not None and remote_function(step) is None:
                call_step(spec.fn, (path,), path)
            else:
                bind(step, path, path, prefix_or_default(spec.output_path_prefix), self._jobs)()
        except BaseException:
            # After a lost lock the output is another's to speak about; that error then comes in place of this one.
            status.write_status(STATUS_FAILED)
            raise
        status.write_status(STATUS_SUCCESS)


def spec_info(spec: StepSpec) -> dict[str, Any]:
    """The content of a bare spec's `.executor_info`."""
    return {
        "name": spec.name,
        "fn_name": function_name(spec.fn),
        "config": plain(dict(spec.hash_attrs)),
        "description": None,
        "override_output_path": spec.override_output_path,
        "version": {},
        "dependencies": spec.dep_paths,
        "output_path": spec.output_path,
        "executor_version": EXECUTOR_VERSION,
    }
