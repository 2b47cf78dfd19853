"""Actors as threads of this process."""

import functools
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from fray.actor import ActorContext, ActorHandle, ShutdownEvent, enter_actor
from fray.backends.common.actors import ActorRequest, Ended, RefGroup, RefHandle, public_methods
from fray.backends.common.process_owner import ProcessOwner
from fray.backends.local.actor_server import ActorServer
from fray.backends.local.actor_wire import ActorAddress, LocalActorFuture, host
from rigging.errors import Conflict
from rigging.process.calls import call_to_end


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    future: "Future[Any]"


class LocalActor:
    """One actor: a queue of calls, served in order by up to `max_concurrency` threads."""

    def __init__(self, request: ActorRequest, index: int, new_path: Callable[[], str]) -> None:
        self._request = request
        self._owner = ProcessOwner()
        self._new_path = new_path
        self._server: ActorServer | None = None
        self._address: ActorAddress | None = None
        self.index = index
        self.label = f"{request.name!r} [{index}]"
        self.class_name = request.cls.__name__
        self.handle: ActorHandle = RefHandle(self)
        self._shutdown_event = ShutdownEvent(self.stop)
        self._context = ActorContext(self.handle, index, request.name, self._shutdown_event)
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._instance: Any = None
        self.started: Future[None] = Future()

    @functools.cached_property
    def methods(self) -> frozenset[str]:
        return public_methods(self._request.cls)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.listen().__reduce__()

    @property
    def ready(self) -> bool:
        """Whether the actor is constructed and still accepts calls."""
        return self.started.done() and self.started.exception() is None and not self._stopped

    @property
    def ended(self) -> bool:
        """Whether the actor no longer accepts calls: shut down, or its constructor failed."""
        return self._stopped

    def start(self, context: Context) -> None:
        """Construct the actor in its first thread, in a copy of `context`."""
        self._spawn(context, self._construct)

    def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LocalActorFuture:
        """Queue a call. Calls of one caller begin in order.

        Args:
            method: Name of a public method.
            args: Positional arguments.
            kwargs: Keyword arguments.
        """
        return LocalActorFuture(self, method, self.call_future(method, args, kwargs))

    def call_future(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Future[Any]":
        """Call like `call`, but return a plain future."""
        self._owner.check(f"actor {self.label}")
        future: Future[Any] = Future()
        with self._lock:
            if self._stopped:
                raise Conflict(f"actor {self.label} was shut down: it cannot run {method!r}")
            self._calls.put(_Call(method, args, kwargs, future))
        return future

    def listen(self) -> ActorAddress:
        """Start to accept calls from other processes. Later calls do nothing."""
        with self._lock:
            if self._address is None:
                address = ActorAddress(self._new_path(), self.label, self.class_name, self.methods)
                if not self._stopped:
                    self._server = ActorServer.listen(self, address.path)
                self._address = address
                host(address, self)
            return self._address

    def runs_here(self) -> bool:
        return self._request.config.max_concurrency == 1 and threading.current_thread() in self._threads

    def stop(self) -> None:
        """Refuse new calls, cancel queued ones, and let running ones finish."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            self._cancel_queued()
            for _ in self._threads:
                self._calls.put(None)
            server = self._server
        self._shutdown_event.set()
        if server is not None:
            server.close()

    def join(self) -> None:
        """Wait for the actor's threads to end, except for the calling one."""
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
            self._instance = call_to_end(self._request.cls, *self._request.args, **self._request.kwargs)
        except BaseException as error:  # raised where the actor is waited for
            self.stop()
            self.started.set_exception(error)
            return
        self.started.set_result(None)
        for _ in range(self._request.config.max_concurrency - 1):
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


class LocalActorGroup(RefGroup):
    """Local actors of one class."""

    def __init__(self, name: str, members: list[LocalActor]) -> None:
        super().__init__(name, len(members))
        self._members = members
        self._changed = threading.Condition()
        for member in members:
            member.started.add_done_callback(lambda _: self._tell_waiters())

    def start(self, context: Context) -> None:
        """Construct all members, each in a copy of `context`."""
        for member in self._members:
            member.start(context)

    def join(self) -> None:
        """Wait for the threads of all members to end, except for the calling one."""
        for member in self._members:
            member.join()

    def only_member(self) -> ActorHandle:
        (member,) = self._members
        member.started.result()
        return member.handle

    def is_done(self) -> bool:
        return all(member.ended for member in self._members)

    def shutdown(self) -> None:
        for member in self._members:
            member.stop()
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _ready(self) -> list[int]:
        return [member.index for member in self._members if member.ready]

    def _handle(self, index: int) -> ActorHandle:
        return self._members[index].handle

    def _ended(self) -> Ended:
        ended = [member for member in self._members if member.ended]
        errors = [error for member in ended if member.started.done() and (error := member.started.exception())]
        cause = errors[0] if errors else None
        return Ended(len(ended), f"{type(cause).__name__}: {cause}" if cause else "shut down", cause)

    def _wait_for(self, wanted: int, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self.ready_count >= wanted or self._size - self._ended().count < wanted, seconds
            )
