"""One actor in its process: a queue of calls, served in order by up to `max_concurrency` threads."""

import asyncio
import contextvars
import queue
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from iris.actor.transport.payload import NOTHING, Dumps, Pickle, by_cloudpickle, dump, load
from iris.actor.transport.wire import Buffer
from iris.rpc.generated import actor_pb2 as pb
from rigging.process.calls import call_to_end

_ERROR_CHARACTERS: Final = 16_384


class HostedCall:
    """A call on the actor's side.

    Attributes:
        number: The client's number of the call. data: The pickled arguments; None until they are complete.
        end: Its outcome, without the pickle in `end_data`; None until it ends.
        announced: The number of the connection that reported its end to the client; 0 for none.
        timer: The timer of its deadline.
        begun, dropped: Whether it has started, or was dropped; guarded by the actor.
        At most one becomes true.
    """

    __slots__ = (
        "actor", "announced", "begun", "data", "dropped", "end", "end_data", "method", "number", "owner", "size",
        "timer",
    )  # fmt: skip

    def __init__(self, number: int, actor: str, method: str, size: int, owner: Any) -> None:
        self.number = number
        self.actor = actor
        self.method = method
        self.size = size
        self.owner = owner
        self.data: Buffer | None = None
        self.end: pb.CallEnd | None = None
        self.end_data = NOTHING
        self.announced = 0
        self.timer: asyncio.TimerHandle | None = None
        self.begun = False
        self.dropped = False


class HostedActor:
    """Runs the calls of one instance.

    Args:
        methods: The methods that can be called, by name.
        on_done: Called, in a thread of the actor, when a call has ended.
        on_begun: Called, in a thread of the actor, when a call's large arguments are no longer needed as bytes.
    """

    def __init__(
        self,
        name: str,
        instance: object,
        max_concurrency: int,
        on_begun: Callable[[HostedCall], object],
        on_done: Callable[[HostedCall], object],
        dumps: Dumps = by_cloudpickle,
    ) -> None:
        self.name = name
        self._instance = instance
        self._max_concurrency = max_concurrency
        self._on_begun = on_begun
        self._on_done = on_done
        self._dumps = dumps
        self._calls: queue.SimpleQueue[HostedCall | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = 0
        self._idle = threading.Condition(self._lock)
        self._stopped = False

    def start(self, context: contextvars.Context) -> None:
        """Start the threads, each in a copy of `context`."""
        for index in range(self._max_concurrency):
            target = context.copy().run
            name = f"iris-actor {self.name} {index}"
            threading.Thread(target=target, args=(self._serve,), name=name, daemon=True).start()

    def has_method(self, name: str) -> bool:
        """Return whether `name` is a public method."""
        try:
            return not name.startswith("_") and callable(getattr(type(self._instance), name, None))
        except BaseException:  # whatever a descriptor of the class does: the loop must not end by it
            return False

    def submit(self, call: HostedCall) -> None:
        """Queue the call behind the earlier ones."""
        self._calls.put(call)

    def drop(self, call: HostedCall) -> bool:
        """Cancel the call. Return False if it has started."""
        with self._lock:
            if call.begun:
                return False
            call.dropped = True
            return True

    def stop(self) -> None:
        """Let the threads end after their current calls. The caller drops the calls that have not started."""
        with self._lock:
            self._stopped = True
        for _ in range(self._max_concurrency):
            self._calls.put(None)

    def refuse_waiting(self, reason: str) -> None:
        """After `stop`: end the calls that have not started, and notify their callers."""
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                break
            if call is not None and self.drop(call):
                call.end = pb.CallEnd(refusal=pb.REFUSAL_STOPPED, error=reason)
                self._on_done(call)
        for _ in range(self._max_concurrency):
            self._calls.put(None)  # those of `stop` may have been taken above

    def wait_idle(self, timeout: float) -> bool:
        """After `stop`: wait until no call is running."""
        with self._idle:
            return self._idle.wait_for(lambda: self._running == 0, timeout)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            with self._lock:
                if call.dropped or self._stopped:
                    continue
                call.begun = True
                self._running += 1
            try:
                # `end` last: a reader that sees it takes the data for complete.
                end, call.end_data = self._run(call)
                call.end = end
                self._on_done(call)
            finally:
                self._note_end()
            del call

    def _note_end(self) -> None:
        with self._lock:
            self._running -= 1
            if self._stopped:  # before that there is no waiting thread
                self._idle.notify_all()

    def _run(self, call: HostedCall) -> tuple[pb.CallEnd, Pickle]:
        data = call.data
        assert data is not None
        try:
            args, kwargs = load(data)
        except BaseException as error:  # whatever the classes of the arguments do
            return self._failure(call, error, "the arguments cannot be unpickled by the actor: ")
        finally:
            call.data = None
            del data
            if call.size:  # no need to wake the loop for what never counted
                self._on_begun(call)
        try:
            result = call_to_end(getattr(self._instance, call.method), *args, **kwargs)
            del args, kwargs
        except BaseException as error:  # belongs to the caller
            return self._failure(call, error)
        try:
            return pb.CallEnd(call=call.number), dump(result, self._dumps)
        except BaseException as error:  # whatever the classes of the result do
            return self._failure(call, error, f"the result of {call.method!r} cannot be pickled: ")

    def _failure(self, call: HostedCall, error: BaseException, what: str = "") -> tuple[pb.CallEnd, Pickle]:
        text = _formatted(error, traceback.format_exception_only).strip()
        frames = _formatted(error, traceback.format_exception)
        end = pb.CallEnd(
            call=call.number,
            failed=True,
            error=_clean(what + text),
            traceback=_clean(f"in the actor's process, method {call.method!r}:\n{frames}", last=True),
        )
        if what:
            return end, NOTHING
        try:
            return end, dump(error, self._dumps)
        except BaseException:  # raised by the error's own class: the text must do
            return end, NOTHING


def _formatted(error: BaseException, form: Callable[[BaseException], list[str]]) -> str:
    try:
        return "".join(form(error))
    except BaseException as problem:  # raised by the error's own class
        return f"{type(error).__name__} (it cannot be told as text: {type(problem).__name__})"


def _clean(text: str, last: bool = False) -> str:
    cut = text[-_ERROR_CHARACTERS:] if last else text[:_ERROR_CHARACTERS]
    return cut.encode(errors="replace").decode()
