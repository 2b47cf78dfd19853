"""Call a step's function, in this process or in a job, within its transfer budget, and store the return value."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from marin.execution.config.copying import copy_config
from marin.execution.config.values import MirroredValue, VersionedValue
from marin.execution.config.visitor import LEAF_TYPES, ConfigVisitor, dataclass_field_names, shape
from marin.execution.jobs.results import keep_result_of_job, result_content
from marin.execution.lease.circles import Making, making_as, making_here
from marin.execution.lease.fencing import FreshFiles, LeaseToken
from marin.execution.lease.step_lease import StepLease, step_lease
from marin.execution.log.metric_log import metrics_kept
from marin.execution.log.notes import ValueNote, job_progress, tell, tell_use
from marin.execution.report.progress import Measuring, is_in_step, set_progress_of_process, step_progress
from rigging.errors import InvalidRequest
from rigging.process.calls import call_to_end, exit_status

if TYPE_CHECKING:
    from marin.execution.log.own import LogTask

RETURNED: Final = "the step's function has returned"


def call_step(
    fn: Callable[..., Any], args: Sequence[Any], output_path: str, budget_gb: float | None = None
) -> bytes | None:
    """Call a step's function in the run's process, and return the content of `.artifact` for the run to store.

    Args:
        fn: The function.
        args: Its arguments.
        output_path: The path for `.artifact`.
        budget_gb: Its budget for copies between regions, in 2^30 bytes; None for the current one.

    Returns:
        None, after logging an error, for a value that cannot be stored.

    Raises:
        LeaseLostError: The value cannot be stored, and the lease was lost meanwhile.
        Exception: The function's own error.
    """
    lease = _lease_on(output_path)
    with _budget(budget_gb), metrics_kept(output_path, lease):
        value = _call(fn, args)
    return result_content(value, output_path, lease)


def _lease_on(output_path: str) -> StepLease | None:
    lease = step_lease()
    return lease if lease.output_path == output_path else None


def call_step_in_job(
    fn: Callable[..., Any],
    args: Sequence[Any],
    output_path: str,
    budget_gb: float | None,
    token: LeaseToken | None = None,
    log: LogTask | None = None,
    made: Making | None = None,
) -> str:
    """Call a step's function in its job. The first of several replicas stores the return value.

    The result shows the run that the function has returned (`placement.check_returned`). A process that ends by
    `os._exit(0)`, or by a library's `exit(0)`, would otherwise look like success.

    Args:
        fn: The function.
        args: Its arguments.
        output_path: The path for `.artifact`.
        budget_gb: As in `call_step`.
        token: The lease of the run that waits for the job; None outside of any run.
        log: Instructions for writing the step's log here; None if the run writes the log.
        made: The outputs being made by the job's submitter.

    Returns:
        `RETURNED`.

    Raises:
        LeaseLostError: The lease on the output path was lost meanwhile. Nothing is stored.
        SystemExit: The function's own exit, with a code that always means failure.
        Exception: The function's own error.
    """
    from fray.replica import replica_index

    with _log_kept(log, output_path, token), CALLS_HERE.counted(output_path), _budget(budget_gb), _told_to_run():
        is_first = replica_index() == 0
        is_fresh = log is not None and log.is_fresh
        metrics = metrics_kept(output_path, token, is_fresh=is_fresh) if is_first else contextlib.nullcontext()
        with making_as(made or making_here()), metrics:
            value = _returned(fn, args)
        if is_first:
            _keep(value, output_path, token, is_fresh=is_fresh)
    return RETURNED


def _keep(value: Any, output_path: str, token: LeaseToken | None, *, is_fresh: bool) -> None:
    if token is None:
        keep_result_of_job(value, output_path, None)
    elif keep_result_of_job(value, output_path, FreshFiles(token) if is_fresh else token):
        _tell_kept(token)


def _tell_kept(token: LeaseToken) -> None:
    """Tell the run that the value is stored, so that it does not search for a value left behind."""
    if is_in_step():
        step_progress().kept_under = token.worker_id  # an in-process client's job: the run is here
        return
    # The function may have closed it; a run that is not told looks.
    with contextlib.suppress(OSError, ValueError):
        tell(ValueNote(token.worker_id))


@contextlib.contextmanager
def _log_kept(log: LogTask | None, output_path: str, token: LeaseToken | None) -> Iterator[None]:
    if log is None or is_in_step():
        yield  # an in-process client's job: the run has what it prints
        return
    from fray.replica import replica_index
    from marin.execution.log.own import log_kept_here

    with log_kept_here(log, output_path, token, replica_index()):
        yield


class CallsHere:
    """Running functions of in-process jobs, by output. An in-process client cannot stop them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()

    @contextlib.contextmanager
    def counted(self, output_path: str) -> Iterator[None]:
        """Context manager: count a running function that makes an output."""
        with self._changed:
            self._running[output_path] += 1
        try:
            yield
        finally:
            with self._changed:
                self._running[output_path] -= 1
                if not self._running[output_path]:
                    del self._running[output_path]
                    self._changed.notify_all()

    def wait_for_end(self, output_path: str, seconds: float) -> bool:
        """Wait up to `seconds` until no function here makes the output; return False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: output_path not in self._running, seconds)


CALLS_HERE: Final = CallsHere()


def _call(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    # Each call gets its own copy: the plan, other attempts and other replicas in this process share the config.
    args = [copy_config(arg) for arg in args]
    if is_ray_function(fn):
        return call_ray_function(fn, args)
    return call_to_end(fn, *args)


def _returned(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Call a step's function. Treat `sys.exit(0)` as a failure to return."""
    try:
        return _call(fn, args)
    except SystemExit as error:
        if exit_status(error.code) != 0:
            raise
        # A program that exits with 0 has ended well, and so would the job; but a step that leaves early has not
        # said that its output is whole, and in the run's own process it fails.
        raise SystemExit(f"the step's function called sys.exit({error.code!r}): return from it instead") from error


@contextlib.contextmanager
def _told_to_run() -> Iterator[None]:
    """Context manager: send the function's progress and final resource use to its run."""
    if is_in_step():
        # An in-process client's job: the run is here.
        with Measuring(step_progress(), 0.0):
            yield
        return
    if not logging.getLogger().handlers:
        from rigging.log_setup import configure_logging

        configure_logging()  # as in the run's own process: at INFO, without secrets
    began = time.process_time()
    set_progress_of_process(job_progress())
    with contextlib.suppress(AttributeError, OSError, ValueError):  # stderr without a descriptor
        # The end of the log says where the function was when its job was stopped, as at its timeout.
        faulthandler.register(signal.SIGTERM, file=2, all_threads=False, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGTERM)
        set_progress_of_process(None)
        tell_use(began)


def is_ray_function(fn: Any) -> bool:
    """Return whether a function is a `@ray.remote` function, by its attributes and without importing ray."""
    # One with options given later has no `options` of its own, and cannot be called.
    is_ray = callable(getattr(fn, "options", None)) or (callable(getattr(fn, "bind", None)) and not callable(fn))
    return callable(getattr(fn, "remote", None)) and is_ray


def call_ray_function(fn: Any, args: Sequence[Any]) -> Any:
    """Run a Ray remote function as a Ray task, with its decorator's options, and return its result.

    Raises:
        InvalidRequest: `fn` is a class, or the current fray client does not use the Ray backend.
    """
    if actor := getattr(fn, "__ray_actor_class__", None):
        raise InvalidRequest(
            f"{actor.__qualname__} is a class under @ray.remote, an actor, but a step calls a function: write one that "
            "creates and calls the actor"
        )
    from fray.client import RunsRayFunctions
    from fray.current_client import current_client

    client = current_client()
    if not isinstance(client, RunsRayFunctions):
        name = getattr(fn.remote, "__qualname__", None) or type(fn).__name__
        raise InvalidRequest(
            f"{name} is a Ray remote function, which only fray's Ray backend can run: set FRAY_CLIENT=ray; or take "
            "@ray.remote off it and give the step resources, or write marin.execution.remote.remote(fn, resources=...)"
        )
    return client.run_remote_function(fn, args)


def mirror_budget_gb(config: Any) -> float | None:
    """Return the largest budget of the `mirrored()` values in a config before instantiation, or None."""
    finder = _BudgetFinder()
    finder.visit(config)
    return max(finder.found, default=None)


def _budget(gb: float | None) -> AbstractContextManager[object]:
    if gb is None:
        return contextlib.nullcontext()
    from rigging.filesystem import mirror_budget

    return mirror_budget(gb)


class _BudgetFinder(ConfigVisitor):
    """Collect the budgets of the `mirrored()` values of a config."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def visit_versioned(self, obj: VersionedValue[Any]) -> None:
        """Visit a versioned value."""
        if type(obj.value) not in LEAF_TYPES:
            self.visit(obj.value)

    def visit_mirrored(self, obj: MirroredValue[Any]) -> None:
        """Record the budget."""
        self.found.append(obj.budget_gb)

    def visit_dataclass(self, obj: Any) -> None:
        """Visit the fields."""
        for name in dataclass_field_names(type(obj)):
            if type(item := getattr(obj, name, None)) not in LEAF_TYPES:
                self.visit(item)

    def visit_sequence(self, obj: Any) -> None:
        """Visit the members."""
        for item in obj:
            if type(item) not in LEAF_TYPES:
                self.visit(item)

    visit_set = visit_sequence

    def visit_dict(self, obj: Any) -> None:
        """Visit the values."""
        self.visit_sequence(obj.values())

    def visit_shaped(self, obj: Any) -> None:
        """Visit the parts."""
        self.visit_sequence([item for _, item in shape(obj).parts(obj)])
