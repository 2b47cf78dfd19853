"""A pool of workers that run functions, as older programs use it: actors that are the tasks of one job."""

import itertools
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from iris.client.client import IrisClient
from iris.client.context import iris_ctx
from iris.client.job import Job
from iris.cluster.types import Entrypoint, EnvironmentSpec, ResourceSpec
from rigging.errors import Conflict, InvalidRequest

_LEAF: Final = "pool-worker-"


@dataclass(frozen=True, slots=True)
class WorkerPoolConfig:
    """The workers of a pool.

    Args:
        num_workers: Functions that run at once.
        resources: Needs of each.
        environment: Packages and variables of each.
        name_prefix: Names the jobs: "{name_prefix}-{number}".
        max_retries: How often a function that failed is run again.
    """

    num_workers: int
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    environment: EnvironmentSpec | None = None
    name_prefix: str = "worker"
    max_retries: int = 0

    def __post_init__(self) -> None:
        if self.num_workers < 1:
            raise InvalidRequest(f"WorkerPoolConfig: num_workers must be at least 1, not {self.num_workers}")


@dataclass(frozen=True, slots=True)
class _Call:
    future: "Future[Any]"
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class WorkerPool:
    """Runs functions on the workers of one job, which lives as long as the `with` block.

    with WorkerPool(client, WorkerPoolConfig(num_workers=4)) as pool:
        futures = [pool.submit(score, batch) for batch in batches]

    Args:
        client: The cluster.
        config: The workers.
    """

    def __init__(self, client: IrisClient, config: WorkerPoolConfig) -> None:
        self._client = client
        self._config = config
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._job: Job | None = None
        self._closed = False

    def __enter__(self) -> Self:
        """Start the workers; functions wait for the first that is ready."""
        config = self._config
        self._job = self._client.submit(
            Entrypoint.from_callable(serve_worker),
            f"{config.name_prefix}-{secrets.token_hex(4)}",
            config.resources,
            config.environment,
            replicas=config.num_workers,
            max_retries_failure=config.max_retries,
        )
        for index in range(config.num_workers):
            name = f"{self._job.job_id}/{_LEAF}{index}"
            thread = threading.Thread(target=self._feed, args=(name,), name=f"iris-pool {index}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(wait=kind is None)

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run `fn(*args, **kwargs)` on a worker; return its future. Raises Conflict outside of the `with` block."""
        if self._job is None or self._closed:
            raise Conflict("this WorkerPool is not open: use it as a context manager")
        future: Future[Any] = Future()
        self._calls.put(_Call(future, fn, args, kwargs))
        return future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        """Give the results of `fn` over the items, in their order; all calls are made at once."""
        futures = [self.submit(fn, *items) for items in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True) -> None:
        """Stop the workers, once all functions have run (`wait`), or at once: what has not begun is cancelled then."""
        if self._closed:
            return
        self._closed = True
        if not wait:
            self._cancel_waiting()
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()
        if self._job is not None:
            self._job.terminate("the worker pool was shut down")

    def _cancel_waiting(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            if call is not None:
                call.future.cancel()

    def _feed(self, name: str) -> None:
        """Give one worker its calls."""
        # Here and not above: actors are built on the client.
        from iris.actor.client.client import ActorClient

        retries = self._config.max_retries
        with ActorClient(name, client=self._client, max_retries=retries) as worker:
            while (call := self._calls.get()) is not None:
                if call.future.set_running_or_notify_cancel():
                    _settle(call, worker.call, retries)


def _settle(call: _Call, ask: Callable[..., Any], retries: int) -> None:
    for tries in itertools.count():
        try:
            result = ask("run", (call.fn, call.args, call.kwargs)).result()
        except BaseException as error:  # the function's own, for the one who asked
            if tries < retries:
                continue
            call.future.set_exception(error)
        else:
            call.future.set_result(result)
        return


class PoolWorker:
    """Runs what it is given."""

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return `fn(*args, **kwargs)`."""
        return fn(*args, **kwargs)


def serve_worker() -> None:
    """Be a worker of a pool, in a task of its job, until the task is stopped."""
    from iris.actor.server.server import ActorServer

    index = iris_ctx().task_id.rpartition("/")[2]
    server = ActorServer()
    server.register(f"{_LEAF}{index}", PoolWorker())
    server.serve_background()
    server.wait()
