"""The sessions of clients: their pending messages, and the jobs that they watch."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from iris.core.state.view import ClusterView
from iris.domain.effects import Effect, JobSettled
from iris.domain.ids import JobId
from iris.domain.states import JobState
from rigging.errors import MarinError

MAX_CALLS: Final = 2000
"""Maximum number of concurrent calls of one session; at the maximum, the session reads no messages."""
MAX_TOLD: Final = 500
"""Maximum number of ends in one message."""
TELL_WITHIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job is stored. `adopted` means that the job already existed."""

    job_id: JobId
    adopted: bool


@dataclass(frozen=True, slots=True)
class StoppedJobs:
    """The jobs that the call ended. `already` means that the job had already ended."""

    job_ids: tuple[JobId, ...]
    already: JobState | None


Answer = Submitted | StoppedJobs | MarinError


@dataclass(slots=True)
class News:
    """Messages for one client, in order.

    Args:
        ended: Watched jobs that have settled.
    """

    answers: list[tuple[int, Answer]] = field(default_factory=list)
    ended: list[JobId] = field(default_factory=list)
    refused: list[tuple[JobId, MarinError]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.answers or self.ended or self.refused)


class ConnectedClient:
    """An open stream of a client. Its running calls and watched jobs bound its size.

    Ends of jobs that no wait needs are sent with the next answer, or after a moment, because separate messages are
    expensive.
    """

    def __init__(self, tell_within_s: float = TELL_WITHIN_S, max_told: int = MAX_TOLD) -> None:
        self._tell_within_s = tell_within_s
        self._max_told = max_told
        self.watched: set[JobId] = set()
        self._waiting = False
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._answers: list[tuple[int, Answer]] = []
        self._ended: dict[JobId, None] = {}
        self._refused: dict[JobId, MarinError] = {}
        self._calls = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    @property
    def waiting(self) -> bool:
        """Return whether a wait for the end of a job is open."""
        return self._waiting

    @waiting.setter
    def waiting(self, waiting: bool) -> None:
        self._waiting = waiting
        if waiting and self._ended:
            self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Return whether no call is running. Waits do not count, because their jobs are live."""
        return not self._calls

    async def has_room(self) -> None:
        """Wait until another call may begin."""
        await self._room.wait()

    def begin(self, calls: int) -> None:
        """Record the start of this many calls."""
        self._calls += calls
        if self._calls >= MAX_CALLS:
            self._room.clear()

    def answer(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Queue the answers of these calls."""
        self._answers += answers
        self._calls -= len(answers)
        if self._calls < MAX_CALLS:
            self._room.set()
        self._wake.set()

    def ended(self, job_id: JobId) -> None:
        """Record that a watched job has settled."""
        self._ended[job_id] = None
        if self._waiting:
            self._wake.set()
        elif self._later is None:
            self._later = self._loop.call_later(self._tell_within_s, self._wake.set)

    def refuse(self, job_id: JobId, error: MarinError) -> None:
        """Report that a job cannot be watched."""
        self._refused[job_id] = error
        self._wake.set()

    def close(self) -> None:
        """End the session after sending pending messages."""
        self._closed = True
        self._wake.set()

    async def take(self) -> News | None:
        """Wait for news and return them; None if the session has ended."""
        while True:
            await self._wake.wait()
            news = self._take()
            if news or self._closed:
                return news or None

    def _take(self) -> News:
        if not self._closed:
            self._wake.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None
        told = list(islice(self._ended, self._max_told))
        news = News(self._answers, told, list(self._refused.items()))
        self._answers, self._refused = [], {}
        if len(told) == len(self._ended):
            self._ended = {}
        else:
            for job_id in told:
                del self._ended[job_id]
            self._wake.set()
        return news


class ClientSessions:
    """All sessions of clients. Sends each job's end to the sessions that watch the job.

    Args:
        on_use: Called when a client sends a message.
        new_session: Creates a session.
    """

    def __init__(
        self,
        view: ClusterView,
        on_use: Callable[[], None] = lambda: None,
        new_session: Callable[[], ConnectedClient] = ConnectedClient,
    ) -> None:
        self._new_session = new_session
        self._view = view
        self.on_use = on_use
        self._open: dict[ConnectedClient, None] = {}
        self._watchers: dict[JobId, dict[ConnectedClient, None]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_idle(self) -> bool:
        """Return whether no client's call is running."""
        return all(session.is_idle for session in self._open)

    def open(self) -> ConnectedClient:
        """Open a session."""
        session = self._new_session()
        self._open[session] = None
        if self._closed:
            session.close()
        return session

    def end(self, session: ConnectedClient) -> None:
        """Drop the session of a finished stream."""
        self._open.pop(session, None)
        session.close()
        for job_id in session.watched:
            watchers = self._watchers.get(job_id)
            if watchers is not None:
                watchers.pop(session, None)
                if not watchers:
                    del self._watchers[job_id]
        session.watched.clear()

    def watch(self, session: ConnectedClient, job_id: JobId) -> None:
        """Report the job's end to the session; immediately if the job has settled. The view must be committed. Raise
        NotFound.
        """
        self._view.job(job_id)
        if self._view.is_settled(job_id):
            session.ended(job_id)
        else:
            self.watch_live(session, job_id)

    def watch_live(self, session: ConnectedClient, job_id: JobId) -> None:
        """Watch a job that has not settled in any committed state, like `watch`."""
        session.watched.add(job_id)
        self._watchers.setdefault(job_id, {})[session] = None

    def is_watched(self, job_id: JobId) -> bool:
        """Return whether a client that watches this job is waiting."""
        return any(session.waiting for session in self._watchers.get(job_id, ()))

    def on_effects(self, effects: Sequence[Effect]) -> None:
        if not self._watchers:
            return
        for effect in effects:
            if isinstance(effect, JobSettled):
                for session in self._watchers.pop(effect.job_id, ()):
                    session.watched.discard(effect.job_id)
                    session.ended(effect.job_id)

    def close(self) -> None:
        """End all sessions, including new ones, after sending pending messages."""
        self._closed = True
        for session in self._open:
            session.close()
