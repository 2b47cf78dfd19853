"""A pool of workers that run functions, with the interface of iris's predecessor. The workers are actors, the tasks of
one job.
"""

import collections
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
    """The configuration of a pool's workers.

    Args:
        num_workers: The number of functions that run concurrently.
        resources: The resources of each worker.
        environment: The packages and variables of each worker.
        name_prefix: Prefix of the jobs' names: "{name_prefix}-{number}".
        max_retries: How often a function is retried after it failed or its worker died, and a worker is restarted.
    """

    num_workers: int
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    environment: EnvironmentSpec | None = None
    name_prefix: str = "worker"
    max_retries: int = 0

    def __post_init__(self) -> None:
        if self.num_workers < 1:
            raise InvalidRequest(f"WorkerPoolConfig: num_workers must be at least 1, not {self.num_workers}")


@dataclass(slots=True)
class _Call:
    future: "Future[Any]"
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tries: int = 0


class WorkerPool:
    """Run functions on the workers of one job, which lives as long as the `with` block.

    with WorkerPool(client, WorkerPoolConfig(num_workers=4)) as pool:
        futures = [pool.submit(score, batch) for batch in batches]

    If a worker dies, its function fails with `iris.actor.ActorDied`, or is retried if `max_retries` allows a retry. The
    other workers continue. When no worker is left, all waiting functions fail.

    Args:
        client: The cluster.
        config: The workers.
    """

    def __init__(self, client: IrisClient, config: WorkerPoolConfig) -> None:
        self._client = client
        self._config = config
        self._changed = threading.Condition()
        self._calls: collections.deque[_Call] = collections.deque()
        self._running = 0
        self._workers = config.num_workers
        self._over: BaseException | None = None
        """Why the pool stopped."""
        self._threads: list[threading.Thread] = []
        self._job: Job | None = None
        self._closed = False

    def __enter__(self) -> Self:
        """Start the workers. Functions wait for the first ready worker."""
        config = self._config
        self._job = self._client.submit(
            Entrypoint.from_callable(serve_worker),
            f"{config.name_prefix}-{secrets.token_hex(4)}",
            config.resources,
            config.environment,
            replicas=config.num_workers,
            max_retries_failure=config.max_retries,
            max_task_failures=config.num_workers - 1,
        )
        for index in range(config.num_workers):
            arguments = (self._job.job_id, index)
            thread = threading.Thread(target=self._feed, args=arguments, name=f"iris-pool {index}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(wait=kind is None)

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run `fn(*args, **kwargs)` on a worker and return its future. Raise Conflict outside of the `with` block.

        Args:
            fn: The function, sent as a cloudpickle.
            *args: Positional arguments.
            **kwargs: Keyword arguments.
        """
        call = _Call(Future(), fn, args, kwargs)
        with self._changed:
            if self._job is None or self._closed:
                raise Conflict("this WorkerPool is not open: use it as a context manager")
            over = self._over
            if over is None:
                self._calls.append(call)
                self._changed.notify_all()
        if over is not None:
            call.future.set_exception(over)
        return call.future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        """Call `fn` for all items at once, and yield the results in order."""
        futures = [self.submit(fn, *items) for items in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True) -> None:
        """Stop the workers. With `wait`, let all functions finish; otherwise cancel those that have not started."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            if wait:
                self._changed.wait_for(lambda: not self._calls and not self._running)
            waiting = self._end(Conflict("the worker pool was shut down"))
        for call in waiting:
            if not call.future.cancel():  # it is to be run again
                call.future.set_exception(Conflict("the worker pool was shut down"))
        if self._job is not None:
            self._job.terminate("the worker pool was shut down")
        if wait:
            for thread in self._threads:
                thread.join()

    def _feed(self, job_id: str, index: int) -> None:
        """Send calls to one worker until it is permanently lost or the pool ends."""
        # Here and not above: actors are built on the client.
        from iris.actor.client.client import ActorClient
        from iris.actor.errors import ActorDied, ActorStopped

        with ActorClient(f"{job_id}/{_LEAF}{index}", client=self._client, task_id=f"{job_id}/{index}") as worker:
            while (call := self._next()) is not None:
                try:
                    result = worker.call("run", (call.fn, call.args, call.kwargs)).result()
                except (ActorDied, ActorStopped) as error:
                    self._try_again(call, error)
                    try:
                        worker.call("answer").result()  # of its next life, if there is one
                    except (ActorDied, ActorStopped):
                        self._leave(error)
                        return
                except BaseException as error:  # the function's own, for the one who asked
                    self._try_again(call, error)
                else:
                    call.future.set_result(result)
                    self._settled()

    def _next(self) -> _Call | None:
        """Wait for the next call; return None when the pool ends."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._over is not None)
                if self._over is not None:
                    return None
                call = self._calls.popleft()
                self._running += 1
            if call.tries or call.future.set_running_or_notify_cancel():
                return call
            self._settled()

    def _try_again(self, call: _Call, error: BaseException) -> None:
        """Retry the call on whichever worker is free, or fail it."""
        call.tries += 1
        with self._changed:
            again = call.tries <= self._config.max_retries and self._over is None
            if again:
                self._calls.appendleft(call)
        if not again:
            call.future.set_exception(error)
        self._settled()

    def _settled(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def _leave(self, error: BaseException) -> None:
        """Record that a worker is permanently lost. If it was the last, fail all waiting calls."""
        with self._changed:
            self._workers -= 1
            waiting = [] if self._workers or self._over is not None else self._end(error)
        for call in waiting:
            if call.tries or call.future.set_running_or_notify_cancel():
                call.future.set_exception(error)

    def _end(self, reason: BaseException) -> list[_Call]:
        """Stop accepting calls and return the waiting ones. Call it with the lock held."""
        self._over = reason
        waiting = list(self._calls)
        self._calls.clear()
        self._changed.notify_all()
        return waiting


class PoolWorker:
    """Runs the calls it receives."""

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return `fn(*args, **kwargs)`.

        Args:
            fn: The function.
            args: Positional arguments.
            kwargs: Keyword arguments.
        """
        return fn(*args, **kwargs)

    def answer(self) -> None:
        """Return at once. A call checks that the worker is up."""


def serve_worker() -> None:
    """Serve as a worker of a pool, in a task of its job, until the task is stopped."""
    from iris.actor.server.server import ActorServer

    index = iris_ctx().task_id.rpartition("/")[2]
    server = ActorServer()
    server.register(f"{_LEAF}{index}", PoolWorker())
    server.serve_background()
    server.wait()
