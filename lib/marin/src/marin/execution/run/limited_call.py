"""A function call in this process with a timeout.

Another thread cannot be stopped. At the timeout the function is notified (`step_lease().lost`) and its processes are
ended, which ends a function that waits for them. If the function still continues, its step fails and keeps its lease
until the function or this process has ended.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

from marin.execution.lease.step_lease import StepLease
from marin.execution.report.error_text import stack_of_thread
from marin.execution.report.events import StepTimedOut
from marin.execution.run.children import StepProcesses, ticks_now
from marin.execution.run.interruption import DEFAULT_ENDING, EXIT_LEASES, AtWork, EndingTerms, ExitLeases, end_processes

T = TypeVar("T")


class LimitedCall(Generic[T]):
    """A call in a separate thread.

    Args:
        work: The function.
        lease: The lease of its step.
        timeout: Timeout in seconds.
        ending: The time limits for the end of a function and its processes.
        exit_leases: Takes the leases of functions that continue.
        open_processes: Finds the processes of threads, started since a time in clock ticks.

    Attributes:
        thread: The native id of the thread, while it runs.
    """

    def __init__(
        self,
        work: Callable[[], T],
        lease: StepLease,
        timeout: float,
        ending: EndingTerms = DEFAULT_ENDING,
        exit_leases: ExitLeases = EXIT_LEASES,
        open_processes: Callable[[Iterable[int], int], StepProcesses] = StepProcesses.of_threads,
    ) -> None:
        self.thread = 0
        self._work = work
        self._lease = lease
        self._timeout = timeout
        self._ending = ending
        self._exit_leases = exit_leases
        self._open_processes = open_processes
        self._guard = threading.Lock()
        self._error: BaseException | None = None
        self._result: T | None = None
        self._has_ended = False
        self._on_late_end: Callable[[], None] | None = None

    def run(self, on_thread: Callable[[int], None]) -> T:
        """Make the call in a copy of the current context, and return the function's result.

        Args:
            on_thread: Called with the native id of the thread.

        Raises:
            StepTimedOut: The timeout expired. `still_runs` tells whether the function still runs.
            BaseException: The function's own error.
        """
        since = ticks_now()
        context = contextvars.copy_context()
        caller = threading.Thread(target=context.run, args=(self._call, on_thread), name="marin-step-call", daemon=True)
        caller.start()
        caller.join(self._timeout)
        if caller.is_alive():
            where = stack_of_thread(self.thread)
            self._lease.expire(f"its timeout of {self._timeout:g} s expired")
            with self._open_processes([self.thread], since) as processes:
                if processes:
                    end_processes(processes, self._ending)
            caller.join(self._ending.grace_seconds)
            text = f"step {self._lease.label}: still running after its timeout of {self._timeout:g} s"
            with self._guard:
                error = StepTimedOut(text)
                if not self._has_ended:
                    # Its log has ended with the timeout.
                    self._exit_leases.add([AtWork(self._lease, None, self.thread, in_process=True)])
                    error = StepTimedOut(
                        f"{text}, and its function continues, because a function in the run's own process cannot be "
                        f"stopped: no other run gets {self._lease.output_path} before the function or this process has "
                        "ended",
                        still_runs=True,
                    )
                if where is not None:
                    error.add_note(f"At its timeout the function was here:\n{where}")
                raise error from self._error
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call `call` when the function has ended, or now if it already has."""
        with self._guard:
            self._on_late_end = call
            has_ended = self._has_ended
        if has_ended:
            call()

    def _call(self, on_thread: Callable[[int], None]) -> None:
        self.thread = threading.get_native_id()
        on_thread(self.thread)
        try:
            self._result = self._work()
        # Any exception is the step's failure, and raised where it is waited for.
        except BaseException as error:
            self._error = error
        finally:
            with self._guard:
                self._has_ended = True
                late = self._on_late_end
            if late is not None:
                late()
