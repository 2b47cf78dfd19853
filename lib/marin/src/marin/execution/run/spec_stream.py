"""A run over specs that come one by one, in any number.

Only the specs that are at work, or wait for others that are, are held in memory, and the next one is asked for when
there is room for it; what has ended is known by its status in storage. Of failures the paths are kept, because the
error at the end lists them.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from marin.execution.jobs.placement import LiveJobs
from marin.execution.jobs.remote import function_name
from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.status_file import StatusFile, StepAlreadyDone, check_status, mark_dependency_failed
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.report.events import (
    RunEnded,
    RunEvent,
    RunObserver,
    RunStarted,
    StepEnd,
    StepEnded,
    StepQueued,
    notify,
)
from marin.execution.report.step_output import step_output
from marin.execution.run.children import ticks_now
from marin.execution.run.interruption import end_work
from marin.execution.run.runner import MAX_STEP_THREADS, describe_error
from marin.execution.run.spec_attempt import Attempt, AttemptResult, spec_differences
from marin.execution.step_spec import StepSpec
from marin.execution.version.differences import Difference
from rigging.errors import Conflict, MarinError, StepFailed

logger = logging.getLogger(__name__)

# Threads beyond those at work, which look at statuses.
LOOKING_THREADS = 16
# When nothing happens for this long although calls wait, there are too few threads; then their number doubles.
_STALL_SECONDS = 0.001
# Specs held beyond those at work, so that statuses are read ahead.
READ_AHEAD = 64
# Outputs that are remembered to be there, so that dependants that come soon need not look.
REMEMBERED_OUTPUTS = 20_000
# Failed steps that the error at the end names; the rest is counted.
LISTED_FAILURES = 100


@dataclass(slots=True)
class _Node:
    """A spec that has not ended."""

    spec: StepSpec
    path: str
    was_asked_for: bool = False
    waiting_for: set[str] = field(default_factory=set)
    dependants: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Looked:
    """The status of a path was read, or could not be."""

    path: str
    status: str | None
    error: BaseException | None = None
    differences: Sequence[Difference] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The next spec; None when there are no more, or with what the generator raised."""

    spec: StepSpec | None
    error: BaseException | None = None


_Report = _Asked | _Looked | AttemptResult


class SpecStream:
    """One run; used once. Its state belongs to the thread that calls `run`; others only look, work and report.

    Args:
        steps: The specs; asked for by a thread of its own.
        observers: Who is told what happens.
        force_run_failed: Whether what failed in an earlier run is tried again.
        max_concurrent: Specs at work at once; None for every ready one.
    """

    def __init__(
        self,
        steps: Iterator[StepSpec],
        observers: Sequence[RunObserver],
        force_run_failed: bool,
        max_concurrent: int | None,
    ) -> None:
        self._steps = steps
        self._observers = observers
        self._force_run_failed = force_run_failed
        self._limit = min(max_concurrent or MAX_STEP_THREADS, MAX_STEP_THREADS)
        self._room = threading.Semaphore(self._limit + READ_AHEAD)
        self._stopped = False
        self._nodes: dict[str, _Node] = {}
        self._ready: deque[_Node] = deque()
        self._running: dict[str, Attempt] = {}
        self._jobs = LiveJobs()
        self._began = ticks_now()
        # Specs may be anywhere, so other runs' leases are not looked at more often than suits an object store.
        self._keeper = LeaseKeeper(is_local=False)
        self._reports: SimpleQueue[_Report] = SimpleQueue()
        self._calls: SimpleQueue[tuple[contextvars.Context, Callable[[], _Report]] | None] = SimpleQueue()
        self._threads = 0
        self._growth = 1
        self._calls_under_way = 0
        # Paths with what was to be made there, in a number: see `_identity`.
        self._outputs: OrderedDict[str, int | None] = OrderedDict()
        self._failed: dict[str, int | None] = {}
        self._refused = 0
        self._listed: list[str] = []
        self._left_out = 0
        self._first_error: BaseException | None = None

    def run(self) -> None:
        """Run them all; raises StepFailed when some failed, and at once what the iterator or an interrupt raises."""
        started = time.monotonic()
        self._tell(RunStarted(time.time(), steps=None))
        error: str | None = None
        try:
            with step_output(is_parallel=self._limit > 1):
                self._work_through()
        except BaseException as caught:
            error = describe_error(caught)
            self._abandon(by_keyboard=isinstance(caught, KeyboardInterrupt))
            raise
        finally:
            self._stopped = True
            self._keeper.stop()
            self._room.release()
            for _ in range(self._threads):
                self._calls.put(None)
            self._tell(RunEnded(time.time(), time.monotonic() - started, error))
        self._raise_failures()

    def _work_through(self) -> None:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._ask,), name="marin-step-source", daemon=True).start()
        exhausted = False
        while self._nodes or not exhausted:
            match self._next_report():
                case _Asked(spec=None, error=None):
                    exhausted = True
                case _Asked(spec=None, error=error):
                    assert error is not None
                    raise error
                case _Asked(spec=spec):
                    assert spec is not None
                    if not self._take(spec, was_asked_for=True):
                        self._room.release()
                case _Looked() as looked:
                    self._calls_under_way -= 1
                    self._on_looked(looked)
                case AttemptResult() as result:
                    self._calls_under_way -= 1
                    attempt = self._running.pop(result.path)
                    self._end(result, attempt.take_log())
            while self._ready and len(self._running) < self._limit:
                self._start(self._ready.popleft())

    def _ask(self) -> None:
        """Ask for the next spec whenever there is room for one."""
        while True:
            self._room.acquire()
            if self._stopped:
                return
            try:
                spec = next(self._steps, None)
            # Whatever the generator raises ends the run.
            except BaseException as error:
                self._reports.put(_Asked(None, error))
                return
            self._reports.put(_Asked(spec))
            if spec is None:
                return
            del spec  # not held while there is no room for the next one

    def _take(self, spec: StepSpec, was_asked_for: bool = False) -> bool:
        """Take a spec in, unless it is known; whether it was."""
        path = spec.output_path
        if path in self._nodes or path in self._failed or path in self._outputs:
            self._check_same(spec, path)
            return False
        self._nodes[path] = _Node(spec, path, was_asked_for)
        self._tell(StepQueued(time.time(), spec.name, path))
        self._call(lambda: _look(spec, path))
        return True

    def _check_same(self, spec: StepSpec, path: str) -> None:
        """Count a spec as failed when another one of this run has its output path: it would never be run."""
        node = self._nodes.get(path)
        if node is not None:
            there = None if node.spec is spec else _identity(node.spec)
        else:
            there = self._outputs[path] if path in self._outputs else self._failed[path]
        if there is None or _identity(spec) in (None, there):
            return
        error = Conflict("another step of this run has this output path, with another name, attributes or function")
        logger.error("step %s: not run: %s", spec.name, error)
        self._refused += 1
        self._list_failure(spec.name, path, error)

    def _list_failure(self, name: str, path: str, error: BaseException | None, log: str | None = None) -> None:
        self._first_error = self._first_error or error
        if len(self._listed) < LISTED_FAILURES:
            self._listed.append(f"  {name} -> {path}: {describe_error(error)}{f'  [{log}]' if log else ''}")

    def _on_looked(self, looked: _Looked) -> None:
        node = self._nodes[looked.path]
        try:
            if looked.error is not None:
                raise looked.error
            check_status(looked.status, node.spec.name, node.path, force_run_failed=self._force_run_failed)
        except StepAlreadyDone:
            self._end(AttemptResult(node.path, StepEnd.CACHED, differences=looked.differences))
            return
        # Whatever a storage library raises is this step's failure.
        except Exception as error:
            self._end(AttemptResult(node.path, StepEnd.FAILED, error=error))
            return
        for dep in node.spec.deps:
            path = dep.output_path
            if path in self._failed:
                self._end(AttemptResult(node.path, StepEnd.DEP_FAILED, error=_dependency_error(dep)))
                return
            self._take(dep)
            if path in self._nodes and path not in node.waiting_for:
                node.waiting_for.add(path)
                self._nodes[path].dependants.append(node.path)
        if not node.waiting_for:
            self._ready.append(node)

    def _start(self, node: _Node) -> None:
        attempt = Attempt(node.spec, self._force_run_failed, self._jobs, self._keeper)
        self._running[node.path] = attempt

        def call() -> AttemptResult:
            return attempt.run(self._tell)

        self._call(call)

    def _end(self, result: AttemptResult, log: str | None = None) -> None:
        """Book a result, and those of the steps that cannot run because of it."""
        ended = deque([result])
        while ended:
            result = ended.popleft()
            node = self._nodes.pop(result.path, None)
            if node is None:
                continue
            self._book(node, result, log)
            log = None  # those that follow had no attempt
            if node.was_asked_for:
                self._room.release()
            for path in node.dependants:
                dependant = self._nodes.get(path)
                if dependant is None:
                    continue
                if not result.ok:
                    error = _dependency_error(node.spec)
                    ended.append(AttemptResult(path, StepEnd.DEP_FAILED, error=error))
                    continue
                dependant.waiting_for.discard(node.path)
                if not dependant.waiting_for:
                    self._ready.append(dependant)

    def _book(self, node: _Node, result: AttemptResult, log: str | None) -> None:
        if result.ok:
            self._outputs[node.path] = _identity(node.spec)
            if len(self._outputs) > REMEMBERED_OUTPUTS:
                self._outputs.popitem(last=False)
        else:
            self._failed[node.path] = _identity(node.spec)
            if result.end is StepEnd.DEP_FAILED:
                self._left_out += 1
                _mark(node.path)
            else:
                self._list_failure(node.spec.name, node.path, result.error, log)
        error = None if result.error is None else describe_error(result.error)
        ended = StepEnded(
            time.time(),
            node.spec.name,
            node.path,
            result.end,
            result.seconds,
            error,
            log,
            tuple(map(str, result.differences)),
            queued_seconds=result.queued_seconds,
        )
        self._tell(ended)

    def _call(self, call: Callable[[], _Report]) -> None:
        """Have a call made by another thread, within the context of this one."""
        self._calls_under_way += 1
        self._calls.put((contextvars.copy_context(), call))
        if not self._threads:
            self._add_threads(1)

    def _next_report(self) -> _Report:
        """Wait for the next report; there are more threads, up to the limit, while calls wait and nothing happens."""
        useful = min(self._calls_under_way, self._limit + LOOKING_THREADS)
        while not self._calls.empty() and self._threads < useful:
            try:
                return self._reports.get(timeout=_STALL_SECONDS)
            except Empty:
                self._add_threads(min(self._growth, useful - self._threads))
                self._growth *= 2
        self._growth = 1
        return self._reports.get()

    def _add_threads(self, count: int) -> None:
        for _ in range(count):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"marin-step-{self._threads}", daemon=True).start()

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            context, call = item
            self._reports.put(context.run(call))

    def _abandon(self, *, by_keyboard: bool) -> None:
        attempts = list(self._running.values())
        for attempt in attempts:
            attempt.stop_waiting()

        def all_ended(seconds: float) -> bool:
            deadline = time.monotonic() + seconds
            return all(attempt.wait_for_end(max(0.0, deadline - time.monotonic())) for attempt in attempts)

        end_work(
            [attempt.at_work for attempt in attempts if attempt.at_work is not None],
            all_ended,
            jobs_are_stopping=self._jobs.terminate(),
            by_keyboard=by_keyboard,
            since=self._began,
        )

    def _tell(self, event: RunEvent) -> None:
        notify(self._observers, event)

    def _raise_failures(self) -> None:
        failed = len(self._failed) - self._left_out + self._refused
        if not failed:
            return
        lines = [f"{failed} step(s) failed:", *self._listed]
        if failed > len(self._listed):
            lines.append(f"  and {failed - len(self._listed)} more")
        if self._left_out:
            lines.append(f"not run, because a dependency failed: {self._left_out} step(s)")
        raise StepFailed("\n".join(lines)) from self._first_error


def _look(spec: StepSpec, path: str) -> _Looked:
    try:
        status = StatusFile(path).status
        return _Looked(path, status, differences=spec_differences(spec, path) if status == STATUS_SUCCESS else ())
    # Whatever a storage library raises is for the step that it concerns.
    except Exception as error:
        return _Looked(path, None, error)


def _identity(spec: StepSpec) -> int | None:
    """A number that tells specs of one output path apart by names, attributes and functions' names; None for any."""
    return None if spec.fn is None else hash((spec.name_with_hash, function_name(spec.fn)))


def _dependency_error(dep: StepSpec) -> StepFailed:
    return StepFailed(f"dependency {dep.name} failed ({dep.output_path})")


def _mark(path: str) -> None:
    try:
        mark_dependency_failed(path)
    except (OSError, MarinError) as error:
        logger.warning("could not write DEP_FAILED to %s: %s", path, error)
