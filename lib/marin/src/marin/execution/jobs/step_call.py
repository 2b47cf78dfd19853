"""The call of a step's function, in this process or in a job, with its transfer budget; stores the return value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from marin.execution.config.copying import copy_config
from marin.execution.config.values import MirroredValue, VersionedValue
from marin.execution.config.visitor import LEAF_TYPES, ConfigVisitor, dataclass_field_names, shape
from marin.execution.jobs.results import keep_result, keep_result_of_job
from marin.execution.lease.fencing import LeaseToken
from marin.execution.lease.step_lease import StepLease, step_lease
from rigging.calls import call_to_end
from rigging.errors import InvalidRequest


def call_step(
    fn: Callable[..., Any],
    args: Sequence[Any],
    output_path: str,
    budget_gb: float | None = None,
    token: LeaseToken | None = None,
) -> Any:
    """Call a step's function and store its return value at its output path.

    A value that cannot be stored is only logged: the work is done.

    Args:
        fn: The function.
        args: Its arguments.
        output_path: Where `.artifact` goes.
        budget_gb: Its budget for copies between regions, in 2^30 bytes; None for the present one.
        token: The lease that the step is made under, when another process holds it.

    Raises:
        LeaseLostError: The lease on the output path was lost on the way; nothing is stored.
        Exception: The function's own.
    """
    with _budget(budget_gb):
        value = _call(fn, args)
    keep_result(value, output_path, token or _lease_on(output_path))
    return value


def _lease_on(output_path: str) -> StepLease | None:
    lease = step_lease()
    return lease if lease.output_path == output_path else None


def call_step_in_job(
    fn: Callable[..., Any],
    args: Sequence[Any],
    output_path: str,
    budget_gb: float | None,
    token: LeaseToken | None = None,
) -> None:
    """Call a step's function in its job; of several replicas the first stores the return value.

    Arguments and errors are those of `call_step`.
    """
    from fray.replica import replica_index

    with _budget(budget_gb):
        value = _call(fn, args)
    if replica_index() == 0:
        keep_result_of_job(value, output_path, token)


def _call(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    # Each call gets its own copy: the plan, other attempts and other replicas in this process share the config.
    args = [copy_config(arg) for arg in args]
    if is_ray_function(fn):
        return call_ray_function(fn, args)
    return call_to_end(fn, *args)


def is_ray_function(fn: Any) -> bool:
    """True for a function of `@ray.remote`: recognised by its attributes, without importing ray."""
    return callable(getattr(fn, "remote", None)) and callable(getattr(fn, "options", None))


def call_ray_function(fn: Any, args: Sequence[Any]) -> Any:
    """Run a Ray remote function as a Ray task, with its decorator's options, and return its result.

    Raises:
        InvalidRequest: The current fray client is not of the Ray backend.
    """
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
    """Return the largest budget of the `mirrored()` values in a config that is not instantiated; None without any."""
    finder = _BudgetFinder()
    finder.visit(config)
    return max(finder.found, default=None)


@contextlib.contextmanager
def _budget(gb: float | None) -> Iterator[None]:
    if gb is None:
        yield
        return
    from rigging.filesystem import mirror_budget

    with mirror_budget(gb):
        yield


class _BudgetFinder(ConfigVisitor):
    """Collects the budgets of the `mirrored()` values of a config."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def visit_versioned(self, obj: VersionedValue[Any]) -> None:
        """Look into a versioned value."""
        self.visit(obj.value)

    def visit_mirrored(self, obj: MirroredValue[Any]) -> None:
        """Note the budget."""
        self.found.append(obj.budget_gb)

    def visit_dataclass(self, obj: Any) -> None:
        """Look into the fields."""
        for name in dataclass_field_names(type(obj)):
            if type(item := getattr(obj, name, None)) not in LEAF_TYPES:
                self.visit(item)

    def visit_sequence(self, obj: Any) -> None:
        """Look into the members."""
        for item in obj:
            if type(item) not in LEAF_TYPES:
                self.visit(item)

    visit_set = visit_sequence

    def visit_dict(self, obj: Any) -> None:
        """Look into the values."""
        self.visit_sequence(obj.values())

    def visit_shaped(self, obj: Any) -> None:
        """Look into the parts."""
        self.visit_sequence([item for _, item in shape(obj).parts(obj)])
