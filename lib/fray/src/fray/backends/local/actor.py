"""Actors as threads of this process."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from fray.actor import ActorContext, ActorHandle, enter_actor
from fray.backends.local.actor_wire import ActorAddress, ActorServer, handle_at, host
from fray.backends.local.future import LocalActorFuture
from fray.errors import JobFailed
from fray.process_owner import ProcessOwner
from fray.types import ActorConfig
from rigging.calls import call_to_end
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    future: "Future[Any]"


class LocalActorMethod:
    """One method of a local actor."""

    def __init__(self, actor: "LocalActor", name: str) -> None:
        self._actor = actor
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._actor.refuse_waiting_for_itself(self._name)
        return self.remote(*args, **kwargs).result()

    def remote(self, *args: Any, **kwargs: Any) -> LocalActorFuture:
        return self._actor.call(self._name, args, kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> LocalActorFuture:
        return self._actor.call(self._name, args, kwargs)


class LocalActorHandle:
    """A local actor; its public methods are attributes."""

    def __init__(self, actor: "LocalActor") -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> LocalActorMethod:
        if name.startswith("_"):
            raise AttributeError(f"actor {self._actor.label}: {name!r} is not public, so it cannot be called")
        if not callable(getattr(self._actor.cls, name, None)):
            raise AttributeError(f"actor {self._actor.label}: {self._actor.cls.__name__} has no method {name!r}")
        return LocalActorMethod(self._actor, name)

    def __repr__(self) -> str:
        return f"<actor {self._actor.label}>"

    def __reduce__(self) -> tuple[Callable[[ActorAddress], ActorHandle], tuple[ActorAddress]]:
        return handle_at, (self._actor.listen(),)


class LocalActor:
    """One actor: a queue of calls, and threads that serve it in order, `max_concurrency` at a time."""

    def __init__(
        self,
        group_name: str,
        index: int,
        cls: type[Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        config: ActorConfig,
        new_path: Callable[[], str],
    ) -> None:
        self.cls = cls
        self._owner = ProcessOwner()
        self._new_path = new_path
        self._server: ActorServer | None = None
        self._address: ActorAddress | None = None
        self.index = index
        self.label = f"{group_name!r} [{index}]"
        self.handle = LocalActorHandle(self)
        self._context = ActorContext(self.handle, index, group_name)
        self._args = args
        self._kwargs = kwargs
        self._config = config
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._instance: Any = None
        self.started: Future[None] = Future()

    @property
    def ready(self) -> bool:
        """Whether it has been constructed and still takes calls."""
        return self.started.done() and self.started.exception() is None and not self._stopped

    @property
    def ended(self) -> bool:
        """Whether it takes no calls any more: shut down, or never constructed."""
        return self._stopped

    def start(self, context: Context) -> None:
        """Construct the actor in its first thread, within a copy of `context`."""
        self._spawn(context, self._construct)

    def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LocalActorFuture:
        """Queue a call; calls of one caller begin in the order they were made."""
        return LocalActorFuture(f"{method!r} of actor {self.label}", self.call_future(method, args, kwargs))

    def call_future(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Future[Any]":
        """As `call`, with a plain future."""
        self._owner.check(f"actor {self.label}")
        future: Future[Any] = Future()
        with self._lock:
            if self._stopped:
                raise Conflict(f"actor {self.label} was shut down: it cannot run {method!r}")
            self._calls.put(_Call(method, args, kwargs, future))
        return future

    def listen(self) -> ActorAddress:
        """Take calls from other processes too, from the first time this is asked."""
        with self._lock:
            if self._address is None:
                methods = frozenset(
                    name for name in dir(self.cls) if not name.startswith("_") and callable(getattr(self.cls, name))
                )
                address = ActorAddress(self._new_path(), self.label, self.cls.__name__, methods)
                if not self._stopped:
                    self._server = ActorServer(self, address.path)
                self._address = address
                host(address, self.handle)
            return self._address

    def refuse_waiting_for_itself(self, method: str) -> None:
        """Raise Conflict when the calling thread is the one that would have to serve the call."""
        if self._config.max_concurrency == 1 and threading.current_thread() in self._threads:
            raise Conflict(
                f"actor {self.label} would wait for itself: {method!r} can run only after the current method; "
                f"use .remote() without waiting, or ActorConfig(max_concurrency=2)"
            )

    def stop(self) -> None:
        """Take no more calls, cancel those not begun, and let those running finish."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            self._cancel_queued()
            for _ in self._threads:
                self._calls.put(None)
            server = self._server
        if server is not None:
            server.close()

    def join(self) -> None:
        """Wait until its threads have ended, not counting the calling one."""
        if self._server is not None:
            self._server.join()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _spawn(self, context: Context, work: Callable[[Context], None]) -> None:
        own = context.copy()
        own.run(enter_actor, self._context)
        thread = threading.Thread(target=own.run, args=(work, context), name=f"fray-actor {self.label}", daemon=True)
        with self._lock:
            if self._stopped:
                # Stopped before it began: `stop` has not sent this thread its end.
                self._calls.put(None)
            self._threads.append(thread)
        thread.start()

    def _construct(self, context: Context) -> None:
        try:
            self._instance = call_to_end(self.cls, *self._args, **self._kwargs)
        except BaseException as error:  # raised where the actor is waited for
            self.stop()
            self.started.set_exception(error)
            return
        self.started.set_result(None)
        for _ in range(self._config.max_concurrency - 1):
            self._spawn(context, self._serve)
        self._serve(context)

    def _serve(self, _context: Context) -> None:
        while (call := self._calls.get()) is not None:
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                result = call_to_end(getattr(self._instance, call.method), *call.args, **call.kwargs)
            except BaseException as error:  # belongs to the caller
                call.future.set_exception(error)
            else:
                call.future.set_result(result)
            del call

    def _cancel_queued(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            if call is not None:
                call.future.cancel()
                call.future.set_running_or_notify_cancel()


class LocalActorGroup:
    """Local actors of one class."""

    def __init__(self, name: str, members: list[LocalActor]) -> None:
        self._name = name
        self._members = members
        self._lock = threading.Lock()
        self._discovered: set[int] = set()
        self._changed = threading.Condition(self._lock)
        for member in members:
            member.started.add_done_callback(self._on_started)

    def start(self, context: Context) -> None:
        """Construct all members, each within a copy of `context`."""
        for member in self._members:
            member.start(context)

    def join(self) -> None:
        """Wait until the threads of all members have ended, not counting the calling one."""
        for member in self._members:
            member.join()

    @property
    def ready_count(self) -> int:
        return sum(member.ready for member in self._members)

    def only_member(self) -> LocalActorHandle:
        """The handle of a group of one, once it is constructed; raises what its constructor raised."""
        (member,) = self._members
        member.started.result()
        return member.handle

    def wait_ready(self, count: int | None = None, timeout: float = 300.0) -> list[ActorHandle]:
        """Wait for `count` ready actors (see `ActorGroup.wait_ready`)."""
        wanted = len(self._members) if count is None else count
        if not 0 <= wanted <= len(self._members):
            raise InvalidRequest(f"actor group {self._name!r} has {len(self._members)} actors, not {wanted}")
        deadline = time.monotonic() + timeout
        with self._changed:
            while self.ready_count < wanted:
                self._raise_if_out_of_reach(wanted)
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise DeadlineExceeded(
                        f"actor group {self._name!r}: {self.ready_count} of {wanted} actors ready after {timeout} s"
                    )
                self._changed.wait(min(remaining, threading.TIMEOUT_MAX))
        return [member.handle for member in self._members if member.ready]

    def discover_new(self) -> list[ActorHandle]:
        with self._lock:
            new = [member for member in self._members if member.ready and member.index not in self._discovered]
            self._discovered.update(member.index for member in new)
        return [member.handle for member in new]

    def is_done(self) -> bool:
        return all(member.ended for member in self._members)

    def shutdown(self) -> None:
        for member in self._members:
            member.stop()
        with self._changed:
            self._changed.notify_all()

    def _on_started(self, _: "Future[None]") -> None:
        with self._changed:
            self._changed.notify_all()

    def _raise_if_out_of_reach(self, wanted: int) -> None:
        ended = [member for member in self._members if member.ended]
        if len(self._members) - len(ended) >= wanted:
            return
        errors = [error for member in ended if member.started.done() and (error := member.started.exception())]
        cause = errors[0] if errors else None
        reason = f"{type(cause).__name__}: {cause}" if cause else "shut down"
        raise JobFailed(
            f"actor group {self._name!r}: {len(ended)} of {len(self._members)} actors ended, so {wanted} cannot become "
            f"ready: {reason}"
        ) from cause
