"""One job for each of many items, with bounded concurrency."""

import itertools
import os
import queue
import re
import reprlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, TypeVar, overload

import rigging.process.calls
from fray.context import current_client
from fray.protocols import Client, JobHandle, SubmitsMany
from fray.requests.checks import check_count
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus, ResourceConfig, Value
from fray.waiting import next_ended, stop_parts
from rigging.errors import InvalidRequest, MarinError
from rigging.process.calls import name_of

__all__ = ["map"]


Item = TypeVar("Item")

_LONGEST_NAME: Final = 60
_OWN: Final = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, rigging.process.calls.__file__)
)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.@+=-]+")


@overload
def map(
    fn: Callable[[Item], Coroutine[Any, Any, Value]],
    items: Iterable[Item],
    *,
    max_in_flight: int = 64,
    resources: ResourceConfig | None = None,
    ordered: bool = True,
    return_exceptions: Literal[False] = False,
    environment: EnvironmentConfig | None = None,
    max_retries_failure: int = 0,
    name: str | None = None,
    client: Client | None = None,
) -> Iterator[Value]: ...


@overload
def map(
    fn: Callable[[Item], Value],
    items: Iterable[Item],
    *,
    max_in_flight: int = 64,
    resources: ResourceConfig | None = None,
    ordered: bool = True,
    return_exceptions: Literal[False] = False,
    environment: EnvironmentConfig | None = None,
    max_retries_failure: int = 0,
    name: str | None = None,
    client: Client | None = None,
) -> Iterator[Value]: ...


@overload
def map(
    fn: Callable[[Item], Coroutine[Any, Any, Value]],
    items: Iterable[Item],
    *,
    max_in_flight: int = 64,
    resources: ResourceConfig | None = None,
    ordered: bool = True,
    return_exceptions: bool,
    environment: EnvironmentConfig | None = None,
    max_retries_failure: int = 0,
    name: str | None = None,
    client: Client | None = None,
) -> Iterator[Value | Exception]: ...


@overload
def map(
    fn: Callable[[Item], Value],
    items: Iterable[Item],
    *,
    max_in_flight: int = 64,
    resources: ResourceConfig | None = None,
    ordered: bool = True,
    return_exceptions: bool,
    environment: EnvironmentConfig | None = None,
    max_retries_failure: int = 0,
    name: str | None = None,
    client: Client | None = None,
) -> Iterator[Value | Exception]: ...


def map(
    fn: Callable[[Item], Any],
    items: Iterable[Item],
    *,
    max_in_flight: int = 64,
    resources: ResourceConfig | None = None,
    ordered: bool = True,
    return_exceptions: bool = False,
    environment: EnvironmentConfig | None = None,
    max_retries_failure: int = 0,
    name: str | None = None,
    client: Client | None = None,
) -> Iterator[Any]:
    """Run `fn(item)` as a job for every item, and yield the results.

    Items are taken as capacity frees up, so there may be infinitely many. Jobs are submitted only while the caller
    waits for a result, beginning with the first. The first failure ends the iteration immediately. However the
    iteration ends (also by `close()`, Ctrl-C or garbage collection), the remaining jobs are stopped.

    Args:
        fn: The function to call.
        items: Its argument, for each call.
        max_in_flight: Maximum number of jobs whose results are not yet yielded: running, pending or finished.
        resources: The resources of each job; None for `ResourceConfig()`.
        ordered: Yield in the order of the items; otherwise as jobs end, which keeps all slots busy.
        return_exceptions: Yield the exception of a failed job instead of its result, and continue.
        environment: The environment of each job; None for the submitter's own.
        max_retries_failure: Maximum number of retries of each job after failures.
        name: Prefix of the jobs' names; None for the name of `fn`.
        client: Submits the jobs; None for `current_client()`.

    Raises:
        InvalidRequest: An argument is invalid; raised by the call itself.
        Exception: During iteration: any error of `JobHandle.result`, `Client.submit` or `items`. An error of `items` is
            raised after the results of earlier items.
    """
    if not callable(fn):
        raise InvalidRequest(f"fray.map: {fn!r} is not callable")
    if not isinstance(items, Iterable):
        raise InvalidRequest(f"fray.map: items is {type(items).__name__}, which cannot be iterated over")
    check_count("fray.map: max_in_flight", max_in_flight)
    check_count("fray.map: max_retries_failure", max_retries_failure, 0)
    needs = resources or ResourceConfig()
    if needs.replicas != 1:
        raise InvalidRequest(
            f"fray.map: resources.replicas is {needs.replicas}; each item is a job of one replica: "
            "submit jobs of several yourself, and call their result()"
        )
    stem = _NOT_IN_NAMES.sub("-", name or name_of(fn)).strip("-.")[:_LONGEST_NAME] or "map"
    run = f"{stem}-{os.urandom(4).hex()}"

    def request(index: int, item: Item) -> JobRequest:
        return JobRequest(
            f"{run}-{index}",
            Entrypoint.from_callable(fn, [item]),
            resources=needs,
            environment=environment,
            max_retries_failure=max_retries_failure,
        )

    chosen = client or current_client()
    # An iterator may wait for results before its next item.
    batches = chosen if isinstance(chosen, SubmitsMany) and isinstance(items, Sized) else None
    return _Mapping(chosen, ordered, return_exceptions, batches).run(
        ((request(index, item), item) for index, item in enumerate(items)), max_in_flight
    )


class _Outcome(NamedTuple):
    """A job's value, or its exception."""

    value: Any = None
    error: Exception | None = None


def _without_own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame outside fray and rigging, or None."""
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OWN):
        frames = frames.tb_next
    return frames


def _raisable(error: Exception) -> Exception:
    """Return an exception that a generator can raise. StopIteration would become an error without the note that names
    the item.
    """
    if not isinstance(error, StopIteration):
        return error
    raised = RuntimeError(f"the function raised {error!r}")
    raised.__notes__ = [*getattr(error, "__notes__", [])]
    raised.__cause__ = error
    return raised


class _Mapping:
    """One iteration over the results of `map`.

    Args:
        client: Submits the jobs.
        ordered: Yield in the order of the items.
        return_exceptions: Yield exceptions instead of raising them.
        batches: Submits many jobs together, as many as fit in flight; None to submit each when its item is taken.
    """

    def __init__(self, client: Client, ordered: bool, return_exceptions: bool, batches: SubmitsMany | None) -> None:
        self._client = client
        self._ordered = ordered
        self._return_exceptions = return_exceptions
        self._batches = batches
        self._numbers = itertools.count()
        self._ended: queue.SimpleQueue[JobHandle] = queue.SimpleQueue()
        self._items: dict[int, tuple[int, Any]] = {}  # with their numbers, by the identity of their jobs' handles
        self._running: dict[int, JobHandle] = {}  # by the identity of their handles
        self._order: deque[JobHandle] = deque()  # those in flight, in the order of their items
        self._finished: set[int] = set()  # identities of those in flight that have ended

    def run(self, requests: Iterator[tuple[JobRequest, Any]], most: int) -> Iterator[Any]:
        """Yield the results of these jobs, with a bounded number in flight."""
        more = True
        broken: Exception | None = None
        try:
            while True:
                batch: list[tuple[JobRequest, Any]] = []
                while more and len(self._order) + len(batch) < most:
                    try:
                        request = next(requests, None)
                    except Exception as problem:  # of the items: it comes in its place, behind the results before it
                        request, broken = None, problem
                    if request is None:
                        more = False
                    elif self._batches is not None:
                        batch.append(request)
                    else:
                        self._submit(*request)
                self._submit_all(batch)
                if not self._order:
                    if broken is not None:
                        raise broken
                    return
                outcome = self._take()
                if outcome.error is None or self._return_exceptions:
                    yield outcome.value if outcome.error is None else outcome.error
                else:
                    error = outcome.error
                    # Of the frames on the way here, only the function's own tell anything.
                    raise _raisable(error).with_traceback(_without_own_frames(error.__traceback__))
        finally:
            self._stop()

    def _submit(self, request: JobRequest, item: Any) -> None:
        self._follow(self._client.submit(request, adopt_existing=False), item)

    def _submit_all(self, batch: list[tuple[JobRequest, Any]]) -> None:
        if batch and self._batches is not None:
            handles = self._batches.submit_all([request for request, _ in batch])
            for handle, (_, item) in zip(handles, batch, strict=True):
                self._follow(handle, item)

    def _follow(self, handle: JobHandle, item: Any) -> None:
        self._items[id(handle)] = (next(self._numbers), item)
        self._running[id(handle)] = handle
        self._order.append(handle)
        handle.add_done_callback(lambda _: self._ended.put(handle))

    def _take(self) -> "_Outcome":
        """Wait for the next job to yield, and return its value or exception."""
        while not (self._ordered and id(self._order[0]) in self._finished):
            handle = next_ended(self._ended, list(self._running.values()), None)
            del self._running[id(handle)]
            failed = handle.wait(raise_on_failure=False) is not JobStatus.SUCCEEDED
            if not self._ordered:
                self._order.remove(handle)
                return self._result(handle)
            if failed and not self._return_exceptions:
                return self._result(handle)
            self._finished.add(id(handle))
        handle = self._order.popleft()
        self._finished.discard(id(handle))
        return self._result(handle)

    def _result(self, handle: JobHandle) -> "_Outcome":
        index, item = self._items.pop(id(handle))
        try:
            return _Outcome(handle.result())
        except Exception as error:
            error.add_note(f"fray.map: item {index}, {reprlib.repr(item)}, in job {handle.job_id}")
            return _Outcome(error=error)

    def _stop(self) -> None:
        """Stop the remaining jobs, continuing past errors, but not past another Ctrl-C."""
        left = list(self._running.values())
        stopped = 0
        for part, stop in stop_parts(left):
            try:
                stop()
            except (MarinError, KeyboardInterrupt) as error:
                import logging  # not for every program that imports fray

                logger = logging.getLogger(__name__)
                if isinstance(error, KeyboardInterrupt):
                    names = f"{part[0].job_id} to {left[-1].job_id}"
                    logger.warning("%d jobs were not stopped, and may run on: %s", len(left) - stopped, names)
                    raise
                names = " to ".join(dict.fromkeys([part[0].job_id, part[-1].job_id]))
                logger.warning("job %s could not be stopped: %s", names, error)
            stopped += len(part)
