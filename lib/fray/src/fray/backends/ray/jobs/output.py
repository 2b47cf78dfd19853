"""The output of a job on Ray: kept for replicas that have ended, asked of the client's session for those that run."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import ray

from fray.backends.common.job_life import AttemptEnd, AttemptStatus
from fray.backends.ray.lookup import LOST, Key

SESSION_SECONDS = 60.0


class AsksSession(Protocol):
    """A way to ask the client's session (see `SessionLink`)."""

    def ask(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask it, and start it again if need be."""
        ...


class OutputOwner(Protocol):
    """The client of a job, as far as its output needs it."""

    @property
    def closed(self) -> bool: ...

    @property
    def sessions(self) -> AsksSession: ...

    def ask_session_if_up(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask the session; None when it cannot answer now."""
        ...

    def known_session(self) -> Any:
        """The session, if any process of this client has started it."""
        ...


class _Kept(NamedTuple):
    """Output that a session had when its replica ended, and was asked for."""

    key: Key
    reported: bool
    ref: Any


class Part(NamedTuple):
    """Output of a replica that has ended, or some of it."""

    replica: int
    data: bytes | _Kept


class JobOutput:
    """Output of one job. Thread-safe."""

    def __init__(self, client: OutputOwner, job_id: str) -> None:
        self._client = client
        self._job_id = job_id
        self._lock = threading.Lock()
        self._parts: list[Part] = []

    def parts(self) -> list[Part]:
        """The output of replicas that have ended, to be read one by one."""
        with self._lock:
            return list(self._parts)

    def keep(self, attempt: int, replica: int, end: AttemptEnd) -> None:
        """Keep what an ended replica wrote; it may not have lived to tell.

        Args:
            attempt: Number of the attempt, from 1.
            replica: Its index.
            end: How it ended, with the `TaskResult` as its detail.
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
        """Return the output; a line that says so where it was lost."""
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
        """Return the output of a running attempt by replica, as far as the session knows it."""
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
        """Ask the session that came after one that died: the replica may have reported to it again."""
        try:
            again: bytes = self._client.sessions.ask(lambda session: session.take.remote(*kept[:2]), SESSION_SECONDS)
        except ray.exceptions.RayError:
            again = LOST
        with self._lock:
            self._parts = [Part(part.replica, again) if each is part else each for each in self._parts]
        return again
