"""Record the metrics of steps: numbers by name and step, which `marin table` shows.

They are lines of JSON in `.executor_metrics` of the step's output. A thread writes them twice a second to disks, and at
growing intervals to object stores, which cannot append (like the step's log).
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import multiprocessing.util
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, SupportsFloat

from marin.output_files import LINK_NAME, LINK_URL, METRICS_FILE
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from marin.execution.log.files import LogFile

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.5
_STEP: Final = "step"


def log(values: Mapping[str, float] | None = None, /, *, step: int | None = None, **named: float) -> None:
    """Record numbers of the calling step of an experiment, such as `log(step=100, loss=0.3, lr=1e-4)`.

    It buffers them, and a kill loses at most the last second. Call it from any thread of a job; in the run's process,
    call it from the function's own thread, unless only one step runs. Of several replicas only the first records.
    Outside of steps it does nothing.

    Args:
        values: Numbers by name, for names that are no identifiers, such as "train/loss".
        step: The step of the training; None for the one after the last.
        named: More numbers by name. A value may be anything that `float()` takes, such as a scalar of a device, for
            which the call then waits.

    Raises:
        InvalidRequest: A name is not text, or is "step"; a value is no number; or the calling thread belongs to no step
            while several run in this process.
    """
    recorder = _recorder()
    if recorder is not None:
        recorder.add(step, {**values, **named} if values else named)


def output_of_step() -> str | None:
    """Return the output path of the calling step; None outside of steps, and for a thread of none of several."""
    recorder = _recorder_or_none()
    return None if recorder is None else recorder.output_path


def link(name: str, url: str) -> None:
    """Record a page about the calling step elsewhere, which the step's page links. Outside of steps it does nothing.

    Args:
        name: What the page belongs to, such as `wandb`.
        url: Its address.
    """
    recorder = _recorder_or_none()
    if recorder is not None:
        recorder.link(name, url)


def _recorder_or_none() -> Recorder | None:
    try:
        return _recorder()
    except InvalidRequest:
        return None


class WritesUnderLease(Protocol):
    """A lease, or its token."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the output path. Raise LeaseLostError if the lease is lost."""
        ...


class Recorder:
    """The metrics of one output. Several threads may add to it.

    Args:
        output_path: The output path.
        open_file: Opens the file, once there is something to write.
    """

    def __init__(self, output_path: str, open_file: Callable[[], LogFile]) -> None:
        self.output_path = output_path
        self._open_file = open_file
        self._file: LogFile | None = None
        self._rows: deque[tuple[int, dict[str, float]]] = deque()
        self._links: deque[str] = deque()
        self._next = 0
        self._guard = threading.Lock()
        self._trouble: Exception | None = None

    def add(self, step: int | None, values: dict[str, float]) -> None:
        """Buffer numbers. Raise InvalidRequest for a wrong name, value or step."""
        for name, value in values.items():
            kind = type(value)
            if kind is not float and kind is not int:
                values[name] = _number(name, value)
        if _STEP in values or not all(map(_is_name, values)):
            raise InvalidRequest(f"metrics.log: names are text, and {_STEP!r} is the step; got {[*values]}")
        if step is None:
            step = self._next
        elif type(step) is not int:
            step = _whole(step)
        self._next = step + 1
        self._rows.append((step, values))
        _WRITER.wake()

    def link(self, name: str, url: str) -> None:
        """Buffer the address of a page."""
        self._links.append(json.dumps({LINK_NAME: name, LINK_URL: url}) + "\n")
        _WRITER.wake()

    def flush(self) -> None:
        """Write what is buffered. After an error nothing more is written."""
        with self._guard:
            lines = []
            try:
                while self._links:
                    lines.append(self._links.popleft())
                while self._rows:
                    lines.append(_line(*self._rows.popleft()))
                if not lines or self._trouble is not None:
                    return
                if self._file is None:
                    self._file = self._open_file()
                self._file.write("".join(lines).encode())
            except Exception as error:  # storage libraries raise errors of many types
                self._note(error)

    def close(self, *, keep: bool) -> None:
        """Write the rest. With `keep` off, publish nothing more."""
        if keep:
            self.flush()
        with self._guard:
            file, self._file = self._file, None
            try:
                if file is not None:
                    file.close(keep=keep)
            except Exception as error:
                self._note(error)

    def after_fork(self) -> None:
        """Forget what the parent process will write."""
        self._guard = threading.Lock()
        self._rows.clear()
        self._links.clear()

    def _note(self, error: Exception) -> None:
        self._trouble = error
        logger.warning("the metrics of a step are incomplete: %s: %s", type(error).__name__, error)


class _Writer:
    """One thread that writes the metrics of this process. It ends with the last recorder."""

    def __init__(self) -> None:
        self.recorders: dict[Recorder, None] = {}
        self._changed = threading.Condition()
        self._is_running = False

    def wake(self) -> None:
        """Start the thread if it does not run."""
        if not self._is_running:
            with self._changed:
                if not self._is_running:
                    self._is_running = True
                    threading.Thread(target=self._run, name="marin-metrics", daemon=True).start()

    def add(self, recorder: Recorder) -> None:
        """Write a recorder's metrics from now on."""
        with self._changed:
            self.recorders[recorder] = None

    def remove(self, recorder: Recorder) -> None:
        """Leave a recorder to its owner."""
        with self._changed:
            self.recorders.pop(recorder, None)
            self._changed.notify()

    def after_fork(self) -> None:
        """Go on in a child process, which has no threads."""
        self._changed = threading.Condition()
        self._is_running = False
        for recorder in self.recorders:
            recorder.after_fork()

    def end_with_process(self) -> None:
        """Write the rest at the end of a worker of multiprocessing, which stops threads without a word."""
        multiprocessing.util.Finalize(self, self._flush, exitpriority=0)

    def _flush(self) -> None:
        for recorder in [*self.recorders]:
            recorder.flush()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self.recorders:
                    self._is_running = False
                    return
                self._changed.wait(_PAUSE_SECONDS)
                recorders = [*self.recorders]
            for recorder in recorders:
                recorder.flush()


_WRITER: Final = _Writer()
os.register_at_fork(after_in_child=_WRITER.after_fork)
multiprocessing.util.register_after_fork(_WRITER, _Writer.end_with_process)
_current: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("marin_metrics", default=None)


@contextlib.contextmanager
def metrics_kept(output_path: str, lease: WritesUnderLease | None, *, is_fresh: bool = False) -> Iterator[None]:
    """Context manager: record what the block logs.

    Args:
        output_path: The step's output path.
        lease: Its lease; None outside of any run.
        is_fresh: Whether there was no earlier attempt, and so no file to append to.
    """
    recorder = Recorder(output_path, lambda: _open(output_path, lease, is_fresh))
    _WRITER.add(recorder)
    token = _current.set(recorder)
    try:
        yield
    finally:
        _current.reset(token)
        _WRITER.remove(recorder)
        recorder.close(keep=True)


def _recorder() -> Recorder | None:
    here = _current.get()
    if here is not None and here in _WRITER.recorders:
        return here
    several = _WRITER.recorders
    if len(several) > 1:
        raise InvalidRequest(
            "metrics.log: several steps run in this process, and this thread belongs to none of them: start it with "
            "contextvars.copy_context().run, or give the step resources, so that it runs in a process of its own"
        )
    return next(iter(several), None)


def _open(output_path: str, lease: WritesUnderLease | None, is_fresh: bool) -> LogFile:
    from marin.execution.log.files import UploadedFile, open_log_file
    from rigging.filesystem import local_path
    from rigging.filesystem.location import path_in

    path = path_in(output_path, METRICS_FILE)
    if lease is None or local_path(path) is not None:
        return open_log_file(path, is_fresh)
    return UploadedFile(path, is_fresh, upload=lambda _, content: lease.write(METRICS_FILE, content))


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name)


def _number(name: object, value: Any) -> float:
    if isinstance(value, (str, bytes)) or not (isinstance(value, SupportsFloat) or hasattr(value, "__index__")):
        raise InvalidRequest(f"metrics.log({name}={value!r}): a metric is a number")
    try:
        return int(value) if isinstance(value, int) else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"metrics.log({name}=...): {type(value).__name__} is no number: {error}") from None


def _whole(step: Any) -> int:
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise InvalidRequest(f"metrics.log(step={step!r}): the step is a whole number, or None")
    return int(step.__index__())


def _line(step: int, values: Mapping[str, float]) -> str:
    # JSON has neither NaN nor infinity, and no float holds larger whole numbers.
    known = {name: value if abs(value) <= sys.float_info.max else None for name, value in values.items()}
    return json.dumps({_STEP: step, **known}) + "\n"
