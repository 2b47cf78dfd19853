"""Functions that run as separate jobs with their own resources, environment variables and packages."""

from __future__ import annotations

import functools
import os
import re
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from marin.execution.config.regions import infer_region
from marin.execution.config.tries import check_tries
from marin.execution.jobs.step_call import call_ray_function, call_step_in_job, is_ray_function
from marin.execution.lease.circles import making_here

if TYPE_CHECKING:
    from fray.client import JobHandle
    from fray.types import JobRequest, ResourceConfig
    from marin.execution.lease.fencing import LeaseToken
    from marin.execution.log.own import LogTask

P = ParamSpec("P")
R = TypeVar("R")

PREFIX_VARIABLE = "MARIN_PREFIX"
_MAX_JOB_NAME = 80


@dataclass(frozen=True)
class RemoteCallable(Generic[P, R]):
    """A function that runs as a separate job when called. The call returns the function's value.

    Attributes:
        fn: The function.
        resources: The resources of its machine.
        env_vars: Variables of its environment.
        pip_dependency_groups: Extras of this project, or pip requirements.
        name: The job's name. Defaults to the function's.
        retries: Retries after a failure of a step with this function; None for 0.
        retry_delay: Seconds before a retry; None for 0.
        timeout: Timeout of an attempt at the step, in seconds; None for no limit.
    """

    fn: Callable[P, R | Coroutine[Any, Any, R]]
    resources: ResourceConfig
    env_vars: Mapping[str, str] = field(default_factory=dict)
    pip_dependency_groups: Sequence[str] = ()
    name: str | None = None
    retries: int | None = field(default=None, kw_only=True)
    retry_delay: float | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_tries("remote()", self.retries, self.retry_delay, self.timeout)

    def named(self, name: str) -> RemoteCallable[P, R]:
        """Return the same function under another job name."""
        return replace(self, name=name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Submit the job to the current fray client, wait for it and return its value (see `JobHandle.result`).

        Raises:
            JobFailed: The job failed. In-process clients raise the function's own exception.
            ResultUnavailable: The job succeeded, but its value could not be pickled.
        """
        name = job_name(self.name or function_name(self.fn).rpartition(".")[2], uuid.uuid4().hex)
        job: JobHandle[R] = submit(self, name, args, kwargs)
        job.wait()
        return job.result()


class _Decorator(Protocol):
    """The result of `remote(...)` without a function: a decorator that keeps the function's types."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]]) -> RemoteCallable[P, R]: ...

    @overload
    def __call__(self, fn: Callable[P, R]) -> RemoteCallable[P, R]: ...


@overload
def remote(
    fn: Callable[P, Coroutine[Any, Any, R]],
    *,
    name: str | None = None,
    resources: ResourceConfig | None = None,
    env_vars: Mapping[str, str] | None = None,
    pip_dependency_groups: Sequence[str] | None = None,
    retries: int | None = None,
    retry_delay: float | None = None,
    timeout: float | None = None,
) -> RemoteCallable[P, R]: ...


@overload
def remote(
    fn: Callable[P, R],
    *,
    name: str | None = None,
    resources: ResourceConfig | None = None,
    env_vars: Mapping[str, str] | None = None,
    pip_dependency_groups: Sequence[str] | None = None,
    retries: int | None = None,
    retry_delay: float | None = None,
    timeout: float | None = None,
) -> RemoteCallable[P, R]: ...


@overload
def remote(
    fn: None = None,
    *,
    name: str | None = None,
    resources: ResourceConfig | None = None,
    env_vars: Mapping[str, str] | None = None,
    pip_dependency_groups: Sequence[str] | None = None,
    retries: int | None = None,
    retry_delay: float | None = None,
    timeout: float | None = None,
) -> _Decorator: ...


def remote(
    fn: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    resources: ResourceConfig | None = None,
    env_vars: Mapping[str, str] | None = None,
    pip_dependency_groups: Sequence[str] | None = None,
    retries: int | None = None,
    retry_delay: float | None = None,
    timeout: float | None = None,
) -> Any:
    """Make a function run as a separate job: `remote(fn, ...)`, `@remote`, or `@remote(...)`.

    Args:
        fn: The function.
        name: The job's name. Defaults to the function's (or the step's).
        resources: The resources of its machine. Defaults to one CPU (`ResourceConfig.with_cpu()`).
        env_vars: Variables of its environment.
        pip_dependency_groups: Extras of this project (such as `tokenize_train`), or pip requirements.
        retries: Retries after a failure of a step with this function; 0 by default. Like the next two, it applies to
            steps and has no effect on direct calls.
        retry_delay: Seconds before a retry; 0 by default.
        timeout: Timeout of an attempt in seconds, not counting the time its job is queued; no limit by default.

    Raises:
        InvalidRequest: A number is out of range.
    """
    from fray.types import ResourceConfig

    def wrap(fn: Callable[..., Any]) -> RemoteCallable[..., Any]:
        return RemoteCallable(
            fn=fn,
            resources=resources if resources is not None else ResourceConfig.with_cpu(),
            env_vars=dict(env_vars or {}),
            pip_dependency_groups=tuple(pip_dependency_groups or ()),
            name=name,
            retries=retries,
            retry_delay=retry_delay,
            timeout=timeout,
        )

    return wrap if fn is None else wrap(fn)


def sanitize_job_name(name: str) -> str:
    """Return `name` as a valid job name: lower case, with "-" for characters outside a-z 0-9 _ . - and none at the
    ends.

    Return "remote_job" if nothing is left.
    """
    return re.sub(r"[^a-z0-9_.-]+", "-", name.lower()).strip("-.") or "remote_job"


def job_name(label: str, unique: str) -> str:
    """Return a readable job name: for `hello_world/stats` it is `hello_world-stats-{6 characters of unique}`."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("-.") or "step"
    return f"{plain[:_MAX_JOB_NAME]}-{unique[:6]}"


def job_request(
    remote_fn: RemoteCallable[..., Any],
    name: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    env_vars: Mapping[str, str] | None = None,
    description: str = "",
) -> JobRequest:
    """Return the fray job that runs `remote_fn(*args, **kwargs)`.

    Its environment has this process's prefix and remaining transfer budget, then `env_vars`, then the function's own
    variables. Later ones override earlier ones.

    Args:
        remote_fn: The function, its resources, environment and packages.
        name: The job's name.
        args: Positional arguments.
        kwargs: Keyword arguments.
        env_vars: Further variables.
        description: The job's purpose, which Iris shows.
    """
    from fray.types import Entrypoint, JobRequest, create_environment
    from marin.execution.jobs.packages import split_dependency_groups
    from rigging.filesystem import budget_environment

    groups = split_dependency_groups(remote_fn.pip_dependency_groups)
    carried = budget_environment()
    if PREFIX_VARIABLE in os.environ:
        carried[PREFIX_VARIABLE] = os.environ[PREFIX_VARIABLE]
    return JobRequest(
        name=name,
        description=description,
        entrypoint=Entrypoint.from_callable(plain_function(remote_fn.fn), args=args, kwargs=kwargs),
        resources=remote_fn.resources,
        environment=create_environment(
            extras=groups.extras,
            pip_packages=groups.pip_packages,
            env_vars={**carried, **(env_vars or {}), **remote_fn.env_vars},
        ),
    )


def plain_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a job calls: the one inside a `remote()` wrapper, which would submit another job.

    A Ray remote function becomes a call through the Ray backend.
    """
    while isinstance(fn, RemoteCallable):
        fn = fn.fn
    if is_ray_function(fn):
        return _shown_as(functools.partial(_call_ray_function, fn), fn)
    return fn


def _shown_as(call: functools.partial[Any], fn: Callable[..., Any]) -> functools.partial[Any]:
    """Make lists of jobs show `call` under the name of `fn`."""
    while isinstance(fn, RemoteCallable):
        fn = fn.fn
    call.__wrapped__ = fn  # type: ignore[attr-defined]
    return call


def _call_ray_function(fn: Any, *args: Any) -> Any:
    return call_ray_function(fn, args)


def connect() -> None:
    """Connect to the backend before any step starts, so that an unreachable cluster is reported once and early.

    Raises:
        InvalidRequest: FRAY_CLIENT names an unknown backend.
        Unavailable: The cluster cannot be reached.
    """
    from fray.current_client import current_client

    current_client()


def submit(
    remote_fn: RemoteCallable[..., Any],
    name: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    env_vars: Mapping[str, str] | None = None,
    description: str = "",
) -> JobHandle:
    """Submit the function to the current fray client and return immediately. Arguments are those of `job_request`."""
    from fray.current_client import current_client

    return current_client().submit(job_request(remote_fn, name, args, kwargs, env_vars, description))


def submit_step(
    remote_fn: RemoteCallable[..., Any],
    name: str,
    config: Any,
    *,
    step_name: str,
    output_path: str,
    prefix: str,
    budget_gb: float | None = None,
    env_vars: Mapping[str, str] | None = None,
    token: LeaseToken | None = None,
    log: LogTask | None = None,
) -> JobHandle:
    """Submit a step's function as a job and return immediately. The job stores the function's result.

    Args:
        remote_fn: The function and its job's resources. Unless they name a region or zone, the job runs in the region
            of the step's inputs and output.
        name: The job's name.
        config: The step's instantiated config.
        step_name: For messages.
        output_path: The step's output path.
        prefix: The run's prefix, which becomes the job's.
        budget_gb: The function's budget for copies between regions, in 2^30 bytes; None for this process's remaining
            budget.
        env_vars: Further variables. The run's prefix and the function's own variables win.
        token: The lease of the step. The job stores its result only while the lease is held.
        log: Instructions to the job for writing the step's log; None if the run writes the log.

    Raises:
        RegionConflict: The inputs and the output are in different regions.
    """
    from rigging.filesystem.budget import MARIN_MIRROR_BUDGET_ENV

    region = job_region(remote_fn, config, step_name=step_name, output_path=output_path)
    resources = remote_fn.resources if region is None else replace(remote_fn.resources, regions=[region])
    # W&B shows it in the overview of a run that the function starts.
    variables = {"WANDB_NOTES": f"marin step {output_path}", **(env_vars or {}), PREFIX_VARIABLE: prefix}
    if budget_gb is not None:
        variables[MARIN_MIRROR_BUDGET_ENV] = repr(float(budget_gb))
    # The job calls the wrapper: there the budget applies, and there the return value is stored.
    function = _shown_as(functools.partial(call_step_in_job, plain_function(remote_fn.fn)), remote_fn.fn)
    call = replace(remote_fn, fn=function, resources=resources)
    arguments = ((config,), output_path, budget_gb, token, log, making_here())
    # By this the page of the job links to that of the step.
    step = f"step {output_path.removeprefix(prefix).lstrip('/')}"
    return submit(call, name, arguments, env_vars=variables, description=step)


def job_region(remote_fn: RemoteCallable[..., Any], config: Any, *, step_name: str, output_path: str) -> str | None:
    """Return the region that a step's job must run in; None if its resources name one, or no path determines it.

    Args:
        remote_fn: The function and its job's resources.
        config: The step's instantiated config.
        step_name: For messages.
        output_path: The step's output path.

    Raises:
        RegionConflict: The inputs and the output are in different regions.
    """
    resources = remote_fn.resources
    if resources.regions or resources.zone is not None:
        return None
    return infer_region(step_name, config, output_path)


def function_name(fn: Callable[..., Any] | None) -> str:
    """Return `module.qualified_name` of a function, looking through `remote()`, Ray and `functools` wrappers."""
    while fn is not None:
        ray_proxy = getattr(fn, "remote", None) if is_ray_function(fn) else None
        if isinstance(fn, (RemoteCallable, functools.partial)):
            fn = fn.fn if isinstance(fn, RemoteCallable) else fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif ray_proxy is not None and hasattr(ray_proxy, "__wrapped__"):
            fn = ray_proxy.__wrapped__
        else:
            break
    if fn is None:
        return "None"
    module = getattr(fn, "__module__", None) or "builtins"
    if module == "__main__":
        # With `python -m package.module` the spec has the real name.
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = spec.name if spec is not None else module
    return f"{module}.{getattr(fn, '__qualname__', None) or type(fn).__qualname__}"
