"""The output of a job on Ray: kept here for ended replicas, queried from the client's session for running ones."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import ray

from fray.backends.common.job_life import AttemptEnd, AttemptStatus
from fray.backends.ray.lookup import LOST, Key

SESSION_SECONDS = 60.0


class AsksSession(Protocol):
    """Can ask the client's session (see `SessionLink`)."""

    def ask(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask the session, restarting it if needed."""
        ...


class OutputOwner(Protocol):
    """The part of a client that output needs."""

    @property
    def closed(self) -> bool: ...

    @property
    def sessions(self) -> AsksSession: ...

    def ask_session_if_up(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask the session; return None if it cannot answer now."""
        ...

    def known_session(self) -> Any:
        """Return the session, if any process of this client has started it."""
        ...


class _Kept(NamedTuple):
    """Output that the session held when its replica ended."""

    key: Key
    reported: bool
    ref: Any


class Part(NamedTuple):
    """Some output of an ended replica."""

    replica: int
    data: bytes | _Kept


class JobOutput:
    """The output of one job. Thread-safe."""

    def __init__(self, client: OutputOwner, job_id: str) -> None:
        self._client = client
        self._job_id = job_id
        self._lock = threading.Lock()
        self._parts: list[Part] = []

    def parts(self) -> list[Part]:
        """Return the output of ended replicas, to be read one by one."""
        with self._lock:
            return list(self._parts)

    def keep(self, attempt: int, replica: int, end: AttemptEnd) -> None:
        """Keep the output of an ended replica, which may not have answered.

        Args:
            attempt: Number of the attempt, from 1.
            replica: Its index.
            end: The replica's outcome. The detail is its `TaskResult`.
        """
        outcome = end.detail
        if outcome is None:
            if end.status is not AttemptStatus.SUCCEEDED:
                self._keep_reported((self._job_id, attempt, replica), reported=False)
            return
        if outcome.reported:
            # Asked for now, as the session may be gone when somebody wants to read it.
            self._keep_reported((self._job_id, attempt, replica), reported=True)
        if outcome.output:
            self._append(Part(replica, outcome.output))

    def read(self, part: Part) -> bytes:
        """Return the output, or a note that it was lost."""
        if isinstance(part.data, bytes):
            return part.data
        try:
            data: bytes = ray.get(part.data.ref, timeout=SESSION_SECONDS)
        except ray.exceptions.ActorDiedError:
            return LOST if self._client.closed else self._ask_another(part, part.data)
        except ray.exceptions.RayError as error:
            return f"[output lost: {type(error).__name__}]\n".encode()
        return data

    def reported(self, attempt: int) -> list[tuple[int, bytes]]:
        """Return the session's output of a running attempt, by replica."""
        replicas: dict[int, bytes] | None = self._client.ask_session_if_up(
            lambda session: session.output.remote(self._job_id, attempt), SESSION_SECONDS
        )
        return sorted((replicas or {}).items())

    def _keep_reported(self, key: Key, reported: bool) -> None:
        session = self._client.known_session()
        if session is not None:
            self._append(Part(key[2], _Kept(key, reported, session.take.remote(key, reported))))

    def _append(self, part: Part) -> None:
        with self._lock:
            self._parts.append(part)

    def _ask_another(self, part: Part, kept: _Kept) -> bytes:
        """Ask the session that replaced a dead session, because the replica may have reported to it."""
        try:
            again: bytes = self._client.sessions.ask(lambda session: session.take.remote(*kept[:2]), SESSION_SECONDS)
        except ray.exceptions.RayError:
            again = LOST
        with self._lock:
            self._parts = [Part(part.replica, again) if each is part else each for each in self._parts]
        return again
