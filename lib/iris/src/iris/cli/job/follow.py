"""Follows a job: prints its output, why it waits and how it ended, and handles Ctrl-C."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from iris.cli import exit_codes
from iris.cli.job.phases import PhaseTeller, present_phase
from iris.cli.job.stopping import await_stop
from iris.cli.output import duration, settle_stdout
from iris.cli.status_line import StatusLine
from iris.client import ControllerUnreachable
from iris.client.job import LogThread
from iris.client.job_env import shown_already
from iris.client.logs.printer import LogPrinter
from iris.cluster.types import JobState
from rigging.clock import unix_ms
from rigging.errors import MarinError, NotFound

if TYPE_CHECKING:
    from iris.client import IrisClient, JobStatus

_PENDING_POLL_SECONDS: Final = 1.0
_RUNNING_POLL_SECONDS: Final = 30.0
OUTPUT_PATIENCE_SECONDS: Final = 15.0


def end_process(code: int) -> NoReturn:
    """Exit now, without waiting for threads with unneeded calls."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class Interrupted(KeyboardInterrupt):
    """A signal asked this command to exit. Not an Exception, so that no handler swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Follower:
    """A followed job.

    Args:
        terminate_on_exit: Whether a signal to this command stops the job.
        output_patience: Seconds to wait for the rest of the output after the job has ended.
        leave: Exits this process with a code.
        now_ms: Returns the current time in Unix ms.
        open_output: Creates the thread that prints a job's output.
        status: Shows the job's phases.
    """

    def __init__(
        self,
        client: "IrisClient",
        *,
        terminate_on_exit: bool,
        output_patience: float = OUTPUT_PATIENCE_SECONDS,
        leave: Callable[[int], NoReturn] = end_process,
        now_ms: Callable[[], int] = unix_ms,
        open_output: Callable[["IrisClient", str, LogPrinter], LogThread] = LogThread,
        status: StatusLine | None = None,
    ) -> None:
        self._client = client
        self._leave = leave
        self._now_ms = now_ms
        self._open_output = open_output
        self._output_patience = output_patience
        self._terminate_on_exit = terminate_on_exit
        self._phases = PhaseTeller()
        self._status = StatusLine() if status is None else status
        self._shown = JobState.PENDING
        self._phase_since = time.monotonic()

    @contextlib.contextmanager
    def guard_submission(self, expected_id: str) -> Iterator[None]:
        """Context manager for the submission: a signal must not leave a job whose name was never shown."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # What is ignored stays ignored: nohup, and jobs a shell runs in the background, rely on it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        begin_ms = self._now_ms()
        try:
            yield
        except Interrupted as interrupted:
            self._take_back(expected_id, begin_ms)
            self._leave(128 + interrupted.number)

    def _take_back(self, job_id: str, begin_ms: int) -> None:
        try:
            # A live job of that name may be an older one, which is the reason why this one was about to be refused.
            if not self._client.connection.found or self._client.status(job_id).submitted_at_ms < begin_ms:
                self._status.say("interrupted; nothing was submitted")
                return
            self._client.stop(job_id, "interrupted while it was submitted")
            self._status.say(f"interrupted; job {job_id} stopped")
        except NotFound:
            self._status.say("interrupted; nothing was submitted")
        except (MarinError, Interrupted):
            self._status.say(f"interrupted; job {job_id} may run: `iris job stop {job_id}` stops it")

    def follow(self, job_id: str, *, replicas: int) -> int:
        """Show the job until it has ended, and return the command's exit code."""
        silent = shown_already(job_id, os.environ)
        printer = LogPrinter(
            job_id, before=self._status.retire, prefix_own=replicas > 1, on_retry=self._tell_retry, silent=silent
        )
        output = self._open_output(self._client, job_id, printer)
        try:
            # From its first line on, Ctrl-C is about a job that runs.
            output.start()
            status = self._wait(job_id)
            # The stream ends by itself once everything is sent.
            if not output.join(self._output_patience):
                self._status.say(f"some output may be missing here; all of it: `iris job logs {job_id}`")
        except Interrupted as interrupted:
            self._on_interrupt(job_id, interrupted.number, output)
        except ControllerUnreachable as error:
            output.stop()
            self._status.say(f"{error}; job {job_id} may continue: `iris job logs -f {job_id}` follows it")
            self._leave(exit_codes.GONE_WHILE_WAITING)
        if output.error is not None:
            self._status.say(f"the output ended early: {output.error}; all of it: `iris job logs {job_id}`")
        self._status.say(describe_end(status))
        settle_stdout()
        if output.unwritten:
            self._status.say(f"output is missing here ({output.unwritten}); all of it: `iris job logs {job_id}`")
            return exit_code_of_job(status) or exit_codes.FAILURE
        return exit_code_of_job(status)

    def _wait(self, job_id: str) -> "JobStatus":
        seconds = _PENDING_POLL_SECONDS
        while True:
            statuses, done = self._client.poll_jobs([job_id], seconds=seconds)
            status = statuses[0]
            if done:
                return status
            self._tell_phase(status)
            runs = status.state is JobState.RUNNING and not status.pending_reason
            seconds = _RUNNING_POLL_SECONDS if runs else _PENDING_POLL_SECONDS

    def _tell_phase(self, status: "JobStatus") -> None:
        """Announce a new phase, or show it in place as long as the job has no output."""
        now = time.monotonic()
        line = self._phases.tell(status, now)
        if not self._status.is_live:
            if line:
                self._status.phase(line)
            return
        if status.state is not self._shown:
            self._shown, self._phase_since = status.state, now
        shown = present_phase(status, now - self._phase_since)
        if shown:
            self._status.show(shown)
        elif line:
            self._status.say(line)
        else:
            self._status.clear()

    def _tell_retry(self, task_id: str, attempt: int) -> None:
        self._status.say(f"task {task_id} starts again (attempt {attempt})")

    def _on_interrupt(self, job_id: str, number: int, output: LogThread) -> NoReturn:
        code = 128 + number
        if not self._terminate_on_exit:
            output.stop()
            self._status.say(
                f"job {job_id} continues; `iris job logs -f {job_id}` follows it, `iris job stop {job_id}` stops it"
            )
            self._leave(code)
        try:
            self._status.say(f"stopping job {job_id} (Ctrl-C again: exit at once)")
            stopped = self._client.stop(job_id, f"stopped by {signal.Signals(number).name} to `iris job run`")
            how = await_stop(self._client, stopped)
            if not stopped.job_ids:
                how = f"had {self._client.status(job_id).state.word}"
            output.join(0.0 if stopped.silent else self._output_patience)
            self._status.say(f"job {job_id} {how}")
        except Interrupted:
            output.stop()
            self._status.say(f"exited; job {job_id} may still run: `iris job stop {job_id}` stops it")
        except MarinError as error:
            output.stop()
            self._status.say(f"could not confirm that job {job_id} stopped: {error}; `iris job stop {job_id}` stops it")
        self._leave(code)


def describe_end(status: "JobStatus") -> str:
    """Return one line about the job's end; for a failure with the cause, the deciding task and the command for its
    output.
    """
    took = duration(status.duration_seconds(unix_ms()))
    job = f"job {status.job_id}"
    if status.state is JobState.SUCCEEDED:
        line = f"{job} succeeded" + (f" in {took}" if status.started_at_ms else "")
        if status.failed_tasks:
            failed = f"{status.failed_tasks} of {status.replicas} tasks failed"
            line += f", though {failed}: `iris job summary {status.job_id}`"
        return line
    # The whole of a long error is in the task's output, which has just been shown.
    first, _, rest = status.error.partition("\n")
    why = f": {first}{' ...' if rest else ''}" if first else ""
    task = f" (task {status.deciding_task_id})" if status.deciding_task_id and status.replicas > 1 else ""
    after = f" after {took}" if status.started_at_ms else ""
    return f"{job} {status.state.word}{after}{why}{task}; its output: `iris job logs {status.job_id}`"


def exit_code_of_job(status: "JobStatus") -> int:
    """Return the command's own exit code; 128 + n for signal n; 1 if there is none."""
    if status.state is JobState.SUCCEEDED:
        return exit_codes.OK
    if status.exit_signal:
        return 128 + status.exit_signal
    return status.exit_code or exit_codes.FAILURE


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
    raise Interrupted(number)
