"""Report from a worker process to the session: that a job runs, and its output."""

import threading
import time
from typing import Any

import ray

from fray.backends.common.processes import OutputFile
from fray.backends.ray.lookup import MOST_BYTES_OF_A_REPLICA, find_session
from fray.backends.ray.payload import Work

FIRST_REPORT_SECONDS = 0.05
_SLOWEST_SECONDS = 0.25
_PARK_AFTER_SECONDS = 2.0
_ACKNOWLEDGED_SECONDS = 30.0
_LOOK_AFTER_SECONDS = 5.0
_TRIES = 3


class Reporter:
    """Reports on the job of this process after a short delay: most jobs end before the first report.

    Without a session, output stays in its file and is sent with the job's result.
    """

    def __init__(self) -> None:
        self.work: Work | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._output: OutputFile | None = None
        self._sent = 0
        self._told = False
        self._due = 0.0
        self._look_at = 0.0
        self._interval = FIRST_REPORT_SECONDS
        self._session: tuple[str, Any] | None = None
        self._told_to: Any = None

    def begin(self, work: "Work") -> OutputFile:
        """Start reporting on a job, and return the file for its output."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="fray-reporter", daemon=True)
            self._thread.start()
        with self._lock:
            # A file that a job wrote to is not used again: what that job left running may still write.
            if self._output is None or self._output.size() > 0:
                self._output = OutputFile()
            self.work, self._sent, self._told, self._interval = work, 0, False, FIRST_REPORT_SECONDS
            self._due = time.monotonic() + FIRST_REPORT_SECONDS
            if not self._wake.is_set():
                self._wake.set()
            return self._output

    def tell_all(self) -> None:
        """Send all output so far to the session. Output that it cannot accept now is lost."""
        for _ in range(_TRIES):
            with self._lock:
                if self._output is None or self._output.size() <= self._sent:
                    return
            self._report()

    def end(self) -> tuple[bytes, bool]:
        """Stop reporting. Return the unreported output, and whether the session knows the job."""
        with self._lock:
            self.work = None
            assert self._output is not None
            size = self._output.size()
            return (self._output.read_from(self._sent) if size > self._sent else b""), self._told

    def _loop(self) -> None:
        idle_since = time.monotonic()
        while True:
            time.sleep(self._interval)
            if self.work is not None:
                if time.monotonic() >= self._due:
                    self._report()
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > _PARK_AFTER_SECONDS:
                self._wake.clear()
                if self.work is None:
                    self._wake.wait()
                idle_since = time.monotonic()

    def _report(self) -> None:
        with self._lock:
            work, output = self.work, self._output
            if work is None or output is None:
                return
            size = output.size()
            # What has nothing to say looks now and then whether the session has died that was told of it.
            if self._told and size <= self._sent and time.monotonic() < self._look_at:
                self._interval = min(_SLOWEST_SECONDS, self._interval * 1.5)
                return
            session = self._find(work.environment.namespace)
            if session is None:
                self._interval = min(_SLOWEST_SECONDS, self._interval * 1.5)
                return
            if session != self._told_to:  # another one, which knows nothing of what the former was told
                self._sent, self._told = 0, False
            start = max(self._sent, size - MOST_BYTES_OF_A_REPLICA)
            chunk = output.read_from(start) if size > start else b""
            try:
                key = (work.job_id, work.attempt, work.replica)
                ray.get(session.report.remote(key, chunk), timeout=_ACKNOWLEDGED_SECONDS)
            except ray.exceptions.ActorDiedError:
                # What it knew is told to the next, or goes with the job's result.
                self._session, self._sent, self._told = None, 0, False
                return
            except ray.exceptions.RayError:
                self._session = None
                return
            self._told, self._told_to = True, session
            self._sent = start + len(chunk)
            self._look_at = time.monotonic() + _LOOK_AFTER_SECONDS
            self._interval = FIRST_REPORT_SECONDS

    def _find(self, namespace: str) -> Any:
        if self._session is None or self._session[0] != namespace:
            session = find_session(namespace)
            self._session = None if session is None else (namespace, session)
        return None if self._session is None else self._session[1]
