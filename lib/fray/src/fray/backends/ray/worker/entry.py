"""Run jobs inside Ray's worker processes, one at a time."""

import contextlib
import contextvars
import functools
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import cloudpickle
import ray
from ray.runtime_context import RuntimeContext

from fray.actor import enter_actor
from fray.backends.common.processes import OutputFile
from fray.backends.ray.payload import NAMESPACE_ENV, PARENT_ENV, JobEnvironment, TaskResult, Work
from fray.backends.ray.sending import dumps, pack_returned
from fray.backends.ray.worker.program import run_program
from fray.backends.ray.worker.reporter import Reporter
from fray.context import offer_client
from fray.protocols import Client, JobHandle
from fray.registry import load_backend
from fray.replica import REPLICA_ENV, enter_replica
from fray.sending.remote_errors import pickle_error
from fray.types import BinaryEntrypoint
from fray.waiting import set_wait_hook
from rigging.process.calls import call_to_end, exit_status
from rigging.process.exception_parts import title_of
from rigging.results import NOT_RETURNED, pack_problem

_LIBTPU_LOCK = "/tmp/libtpu_lockfile"

reporter = Reporter()


class JobClient(Client, Protocol):
    """The client for code inside a job. Its jobs are children of `parent`."""

    parent: str

    def block_on(self, handles: Sequence[JobHandle], timeout: float | None) -> None:
        """Block in Ray until one of the jobs may have ended, or about `timeout` seconds."""
        ...


def run_job(request: bytes, large_payload: bytes | None = None) -> TaskResult | None:
    """Run a job's entry point. Errors are returned as values; None means success without output.

    Args:
        request: The fields of a `JobEnvironment` and the pickled entry point (a `BinaryEntrypoint`, or a callable with
            its arguments), as one pickle: Ray transfers bytes fastest.
        large_payload: The entry point, if the request has none.
    """
    fields, payload = pickle.loads(request)  # noqa: S301 - from the job's own client
    entry: Any = large_payload if payload is None else payload
    return run_entry(JobEnvironment(*fields), entry)


def run_entry(environment: JobEnvironment, payload: bytes) -> TaskResult | None:
    """Run a pickled entry point (see `run_job`) as the job in the running task's name."""
    name = _context().get_task_name()
    assert name is not None, "this is a Ray task"
    work = Work.of_task(name, environment)
    output = reporter.begin(work)
    outcome: TaskResult | None
    try:
        outcome = _run(work, payload, output)
    except Exception as error:  # a class that is missing here, a package, a directory: whatever it is, it is the job's
        outcome = failure(error)
    finally:
        rest, reported = reporter.end()
    if work.environment.uses_tpu:
        # The next job on this host finds libtpu locked otherwise.
        with contextlib.suppress(OSError):
            os.unlink(_LIBTPU_LOCK)
    if outcome is None and not rest and not reported:
        return None
    return (outcome or TaskResult())._replace(output=rest, reported=reported)


@contextlib.contextmanager
def output_reported(work: Work) -> Iterator[None]:
    """Context manager: report all output of this process to the session of `work`."""
    _streams.to_job(reporter.begin(work))
    try:
        yield
    finally:
        _streams.to_ray()
        reporter.tell_all()
        reporter.end()


def _run(work: Work, payload: bytes, output: OutputFile) -> TaskResult | None:
    entry = cloudpickle.loads(payload)
    _environment.enter(work)
    if isinstance(entry, BinaryEntrypoint):
        return run_program(entry, work.environment.workspace, output)
    function, args, kwargs = entry
    return _run_callable(function, args, kwargs, work, output)


@functools.cache
def _context() -> RuntimeContext:
    return ray.get_runtime_context()


def failure(error: BaseException) -> TaskResult:
    """Return an exception as a value."""
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:
        # Its class may refuse to be looked at.
        trace = "".join(traceback.format_tb(error.__traceback__))
    pickled = pickle_error(error, functools.partial(dumps, what="the exception"))
    return TaskResult(error=pickled, summary=title_of(error), trace=trace)


class _Environment:
    """The variables and directory of this process, set for the running job.

    They remain until the next job, which changes only the differences: most consecutive jobs of a process are alike.
    """

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}
        self._wanted: dict[str, str] = {}
        self._environment: JobEnvironment | None = None
        self._start_directory: str | None = None

    def enter(self, work: Work) -> None:
        """Apply a job's variables and directory, and install its packages.

        Raises:
            JobFailed: The packages cannot be installed.
        """
        if work.environment is not self._environment:
            self._environment = None
            self._turn_to(work.environment)
            self._environment = work.environment
        self._wanted[PARENT_ENV] = work.job_id
        self._wanted[REPLICA_ENV] = str(work.replica)
        environ = os.environ
        for name, value in self._wanted.items():
            # Looked at each time: the last job may have changed it.
            if environ.get(name) != value:
                environ[name] = value
        self._go_to(work.environment.workspace)

    def _turn_to(self, environment: JobEnvironment) -> None:
        """Apply the changes that are needed now, and undo the others."""
        wanted = {
            **environment.late_env,
            NAMESPACE_ENV: environment.namespace,
            PARENT_ENV: "",
            REPLICA_ENV: "",
            "RAY_ADDRESS": environment.address,
        }
        if environment.packages:
            from fray.backends.ray.worker.packages import ensure_packages  # most jobs have none

            directory = ensure_packages(environment.packages)
            if directory not in sys.path:
                sys.path.insert(0, directory)
            path = os.environ.get("PYTHONPATH", "")
            wanted["PYTHONPATH"] = path if directory in path else os.pathsep.join(filter(None, [directory, path]))
        for name in [name for name in self._before if name not in wanted]:
            self._put(name, self._before.pop(name))
        for name in wanted:
            self._before.setdefault(name, os.environ.get(name))
        self._wanted = wanted

    def _go_to(self, workspace: str | None) -> None:
        if self._start_directory is None:
            self._start_directory = os.getcwd()
        try:
            os.chdir(self._start_directory if workspace is None else workspace)
        except OSError:
            # This node does not have the directory: the job finds itself where Ray has put its code.
            os.chdir(self._start_directory)

    @staticmethod
    def _put(name: str, value: str | None) -> None:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_environment = _Environment()


def _run_callable(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], work: Work, output: OutputFile
) -> TaskResult | None:
    make_client = functools.partial(nested_client, work.environment.namespace, work.job_id)
    if work.environment.namespace in _clients:
        make_client()  # code that has kept it from an earlier job submits children of this one

    def call() -> Any:
        enter_actor(None)
        enter_replica(work.replica)
        offer_client(make_client)
        # Ray gives a task's CPU to others only while its main thread, this one, waits by Ray's own means.
        set_wait_hook(lambda handles, timeout: make_client().block_on(handles, timeout))
        return call_to_end(function, *args, **kwargs)

    _streams.to_job(output)
    try:
        value = contextvars.Context().run(call)
        return None if value is None else TaskResult(value=pack_returned(value))
    except SystemExit as error:
        exit_code = exit_status(error.code)
        if exit_code == 0:
            return TaskResult(value=pack_problem(NOT_RETURNED))
        return TaskResult(summary=f"called sys.exit({error.code!r})", trace=traceback.format_exc(), exit_code=exit_code)
    except BaseException as error:
        # The job's own exception, whatever it is, is raised where the job is waited for. KeyboardInterrupt, too: a
        # callable is stopped by the end of its process.
        return failure(error)
    finally:
        _streams.to_ray()


_clients: dict[str, JobClient] = {}
_clients_lock = threading.Lock()


def nested_client(namespace: str, parent: str) -> JobClient:
    """Return the client for code that runs here for the owner of `namespace`. It is created once."""
    client = _clients.get(namespace)
    if client is not None and not client.closed:
        client.parent = parent
        return client
    with _clients_lock:
        client = _clients.get(namespace)
        if client is None or client.closed:
            # By name: the client starts tasks whose code is this module, so neither can import the other.
            client = _clients[namespace] = load_backend("ray").RayClient.connect(namespace=namespace)
        client.parent = parent
        return client


def current_job_client() -> JobClient | None:
    """Return the client of the job in this process, if there is one."""
    work = reporter.work
    return None if work is None else nested_client(work.environment.namespace, work.job_id)


def current_job_packages() -> tuple[str, ...]:
    """Return the packages of the job in this process, if there is one."""
    work = reporter.work
    return () if work is None else work.environment.packages


class _Streams:
    """Redirects this process's stdout and stderr: to a job's output while one runs, otherwise to Ray's files.

    Between jobs Ray itself writes there. Descriptors are reused across jobs, because most jobs write nothing.
    """

    def __init__(self) -> None:
        self._rays: dict[int, int] = {}
        self._output: OutputFile | None = None
        self._descriptor = -1

    def to_job(self, output: OutputFile) -> None:
        """Redirect output, also of child processes, to the job."""
        _flush()
        if not self._rays:
            self._rays = {target: os.dup(target) for target in {1, 2, *_descriptors(sys.stdout, sys.stderr)}}
        if self._output is not output:
            if self._output is not None:
                os.close(self._descriptor)
            self._output, self._descriptor = output, output.open()
        for target in self._rays:
            os.dup2(self._descriptor, target)

    def to_ray(self) -> None:
        """Redirect output to Ray's files again."""
        _flush()
        for target, original in self._rays.items():
            os.dup2(original, target)


_streams = _Streams()


def _descriptors(*streams: Any) -> Iterator[int]:
    for stream in streams:
        try:
            yield stream.fileno()
        except (AttributeError, OSError, ValueError):
            continue


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # a job may have replaced or closed it
