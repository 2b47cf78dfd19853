"""A stream of step specs of any length as a source of work.

Only running specs, and specs that wait for them, are in memory. The next spec is requested when there is room. Ended
specs are known from their status in storage. Paths of failed specs are kept for the final error.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from marin.execution.jobs.live_jobs import LiveJobs
from marin.execution.jobs.remote import RemoteCallable, function_name
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.plan.call_identity import is_filled
from marin.execution.record.own_modules import OwnModules
from marin.execution.report.events import StepEnd, describe_error
from marin.execution.run.dependencies import Dependencies
from marin.execution.run.spec_task import spec_differences, spec_task
from marin.execution.run.step_task import Run, StepResult, StepTask, check_end, dependency_error
from marin.execution.step_spec import StepSpec
from marin.execution.version.paths import Places, check_path_length
from rigging.errors import Conflict, StepFailed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """Limits for the part of a stream of specs held at a time.

    Attributes:
        read_ahead: Specs held beyond the running ones, so that statuses are read ahead.
        readers: Statuses that are read concurrently.
        remembered_outputs: Existing outputs to remember, so that the next dependants need not read their status.
        listed_failures: Failed steps to name in the error at the end. The others are counted.
    """

    read_ahead: int = 64
    readers: int = 16
    remembered_outputs: int = 20_000
    listed_failures: int = 100


DEFAULT_STREAM_TERMS = StreamTerms()


@dataclass(slots=True)
class _Node:
    """A spec that has not ended."""

    spec: StepSpec
    was_asked_for: bool
    error: BaseException | None = None  # of the first dependency that failed


class SpecSource:
    """The specs of an iterator and their deps. A spec is passed to the run when its deps have ended.

    Args:
        steps: The specs. A separate thread iterates over them.
        limit: The maximum number of concurrent tasks of the run.
        force_run_failed: Whether to retry steps that failed in an earlier run.
        jobs: The jobs of running specs.
        terms: The limits for held specs.
    """

    # Specs may be anywhere, so other runs' leases are not looked at more often than suits an object store.
    is_local = False

    def __init__(
        self,
        steps: Iterator[StepSpec],
        limit: int,
        *,
        force_run_failed: bool,
        jobs: LiveJobs,
        terms: StreamTerms = DEFAULT_STREAM_TERMS,
    ) -> None:
        self._steps = steps
        self._force_run_failed = force_run_failed
        self._jobs = jobs
        self._modules = OwnModules()
        self._terms = terms
        self._room = threading.Semaphore(limit + terms.read_ahead)
        self._readers = ThreadPoolExecutor(terms.readers, thread_name_prefix="marin-step-status")
        self._context = contextvars.copy_context()
        self._stopped = False
        # Below, everything changes under this lock.
        self._guard = threading.Lock()
        self._exhausted = False
        self._nodes: dict[str, _Node] = {}
        self._dependencies = Dependencies()
        # Paths with what was to be made there, in a number: see `_identity`.
        self._outputs: OrderedDict[str, int | None] = OrderedDict()
        self._failed: dict[str, int | None] = {}
        self._places = Places()
        self._spellings: dict[str, str] = {}
        self._refused = 0
        self._listed: list[str] = []
        self._left_out = 0
        self._first_failure: StepFailed | None = None

    def start(self, run: Run) -> None:
        """Start the thread that requests specs."""
        self._run = run
        asking = contextvars.copy_context()
        threading.Thread(target=asking.run, args=(self._ask,), name="marin-step-source", daemon=True).start()

    def stop(self) -> None:
        """Request no more specs."""
        self._stopped = True
        self._room.release()
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._modules.keep_tables()

    def is_done(self) -> bool:
        """Return whether every spec has ended and there are no more."""
        return self._exhausted and not self._nodes

    def _ask(self) -> None:
        """Request the next spec whenever there is room for one."""
        try:
            while True:
                self._room.acquire()
                if self._stopped:
                    return
                spec = next(self._steps, None)
                if spec is None:
                    break
                with self._guard:
                    is_new = self._take(spec, was_asked_for=True)
                if not is_new:
                    self._room.release()
                del spec  # not held while there is no room for the next one
        # Whatever the generator raises ends the run.
        except BaseException as error:
            self._run.fail(error)
            return
        with self._guard:
            self._exhausted = True
        self._run.add([])

    def _take(self, spec: StepSpec, *, was_asked_for: bool = False) -> bool:
        """Add a spec unless it is known, and request its status. Return whether it was new."""
        path = spec.output_path
        if path in self._nodes or path in self._failed or path in self._outputs:
            self._check_same(spec, path)
            return False
        spelled = self._first_spelling(path)
        if spelled != path and not self._check_same(spec, spelled):
            return False
        self._nodes[path] = _Node(spec, was_asked_for)
        self._dependencies.add(path)
        self._run.tell_queued(spec.name, path)
        if not self._stopped:
            self._readers.submit(self._look, spec, path)
        return True

    def _first_spelling(self, path: str) -> str:
        """Return the output path under which a location was first seen: symlinked folders have several paths."""
        if len(self._spellings) >= self._terms.remembered_outputs:
            self._places, self._spellings = Places(), {}
        return self._spellings.setdefault(self._places.of(path), path)

    def _check_same(self, spec: StepSpec, path: str) -> bool:
        """Fail a spec and return False if another spec of this run has its output path."""
        node = self._nodes.get(path)
        if node is not None:
            there = None if node.spec is spec else _identity(node.spec)
        else:
            there = self._outputs.get(path, self._failed.get(path))
        if there is None or _identity(spec) in (None, there):
            return True
        error = Conflict(
            "another step of this run has this output path, with another name, attributes, order of deps or function"
        )
        logger.error("step %s: not run: %s", spec.name, error)
        self._refused += 1
        self._list_failure(spec, path, error)
        return False

    def _look(self, spec: StepSpec, path: str) -> None:
        """Read the status of a spec's output, and pass its task or result to the run. Never raises."""
        try:
            self._run.add(self._context.copy().run(self._looked, spec, path))
        # A defect of the run itself: to be raised by the run, and not lost with this thread.
        except BaseException as error:
            self._run.fail(error)

    def _looked(self, spec: StepSpec, path: str) -> list[StepTask | StepResult]:
        task = spec_task(spec, path, self._jobs, self._modules)
        try:
            check_path_length(spec.name, path)
            status = StatusFile(path).status
            differences = spec_differences(spec, path, self._modules) if status == STATUS_SUCCESS else ()
        # Whatever a storage library raises is for the step that it concerns.
        except Exception as error:
            return [StepResult(task, StepEnd.FAILED, error=error)]
        task = replace(task, is_fresh=status is None, differences=differences)
        end = check_end(task, status, force_run_failed=self._force_run_failed)
        if end is not None:
            return [end]
        with self._guard:
            for dep in spec.deps:
                if dep.output_path not in self._failed:
                    self._take(dep)
                elif self._nodes[path].error is None:
                    self._nodes[path].error = StepFailed(f"dependency {dep.name} failed ({dep.output_path})")
            if self._dependencies.wait(path, [dep.output_path for dep in spec.deps]):
                return []
            return [self._next(path, task)]

    def _next(self, path: str, task: StepTask | None = None) -> StepTask | StepResult:
        """Return a spec whose deps have ended."""
        node = self._nodes[path]
        task = task or spec_task(node.spec, path, self._jobs, self._modules)
        return task if node.error is None else StepResult(task, StepEnd.DEP_FAILED, error=node.error)

    def ended(self, result: StepResult) -> list[StepTask | StepResult]:
        """Record the result of a spec, and return the specs that became ready."""
        path = result.task.output_path
        with self._guard:
            if not result.ok:
                for dependant in self._dependencies.dependants(path):
                    node = self._nodes[dependant]
                    node.error = node.error or dependency_error(result)
            node = self._nodes.pop(path)
            self._keep_in_mind(node.spec, result)
            free = [self._next(dependant) for dependant in self._dependencies.end(path)]
        if node.was_asked_for:
            self._room.release()
        return free

    def _keep_in_mind(self, spec: StepSpec, result: StepResult) -> None:
        path = result.task.output_path
        if result.ok:
            self._outputs[path] = _identity(spec)
            if len(self._outputs) > self._terms.remembered_outputs:
                self._outputs.popitem(last=False)
            return
        self._failed[path] = _identity(spec)
        if result.end is StepEnd.DEP_FAILED:
            self._left_out += 1
        else:
            self._list_failure(spec, path, result.error, result.log)

    def _list_failure(self, spec: StepSpec, path: str, error: BaseException | None, log: str | None = None) -> None:
        if self._first_failure is None:
            self._first_failure = StepFailed(f"Step failed: {spec.name_with_hash}")
            self._first_failure.__cause__ = error
        if len(self._listed) < self._terms.listed_failures:
            self._listed.append(f"  {spec.name} -> {path}: {describe_error(error)}{f'  [{log}]' if log else ''}")

    def raise_failures(self) -> None:
        """Raise one error that names the failed steps, if there are any.

        Raises:
            StepFailed: Its cause names the first failed step with its hash, and is itself caused by that step's own
                error.
        """
        failed = len(self._failed) - self._left_out + self._refused
        if not failed:
            return
        lines = [f"{failed} step(s) failed:", *self._listed]
        if failed > len(self._listed):
            lines.append(f"  and {failed - len(self._listed)} more")
        if self._left_out:
            lines.append(f"not run, because a dependency failed: {self._left_out} step(s)")
        raise StepFailed("\n".join(lines)) from self._first_failure


def _identity(spec: StepSpec) -> int | None:
    """Return a number that identifies a spec by its name, attributes, ordered deps and function; 0 for None."""
    if spec.fn is None:
        return None
    return hash((spec.name_with_hash, *spec.dep_names, function_name(spec.fn), *_function_parts(spec.fn)))


def _function_parts(fn: Callable[..., Any]) -> tuple[object, ...]:
    """Return the parts that distinguish functions of one name: bound values, and for lambdas and inner functions the
    code.
    """
    if isinstance(fn, RemoteCallable):
        return _function_parts(fn.fn)
    if isinstance(fn, functools.partial):
        bound = [*fn.args, *(item for pair in sorted(fn.keywords.items()) for item in pair)]
        return (*map(_plain, bound), *_function_parts(fn.func))
    if not isinstance(fn, types.FunctionType) or "<" not in fn.__qualname__:
        return ()
    held = [cell.cell_contents for cell in fn.__closure__ or () if is_filled(cell)]
    return (fn.__code__, *map(_plain, (*held, *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())))


def _plain(value: object) -> object:
    # Other values have no identity that two equal ones share; they do not tell functions apart.
    return value if type(value) in (str, int, float, bool, bytes) else None
