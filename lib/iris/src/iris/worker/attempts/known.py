"""The attempts of this worker: live ones, and ended ones that the controller has not acknowledged."""

import asyncio
from collections.abc import Iterator

from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.contained import env_file_of
from iris.worker.attempts.rooms import Room, Rooms
from iris.worker.host.removal import remove_tree
from iris.worker.paths import OWN_ERRORS
from iris.worker.reports.result_file import remove


class KnownAttempts:
    """The attempts of this worker, in order of arrival.

    Args:
        rooms: Hold the files and tokens of attempts.
    """

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._all: dict[str, Attempt] = {}
        self._live: dict[str, Attempt] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._all.values())

    def get(self, attempt_id: str) -> Attempt | None:
        """Return the attempt with this id, or None."""
        return self._all.get(attempt_id)

    @property
    def live(self) -> list[Attempt]:
        """The attempts that have not ended."""
        return list(self._live.values())

    @property
    def live_count(self) -> int:
        """Return the number of attempts that have not ended."""
        return len(self._live)

    @property
    def live_ids(self) -> list[str]:
        """The ids of the attempts that have not ended."""
        return list(self._live)

    def room(self, attempt: Attempt) -> Room:
        """Return the room that holds the attempt's files."""
        return self._rooms.at(attempt.room)

    def add(self, attempt: Attempt) -> None:
        """Add a live attempt and keep its token file."""
        self._all[attempt.attempt_id] = self._live[attempt.attempt_id] = attempt
        self.room(attempt).tokens.hold(attempt.request)
        self._idle.clear()

    def end(self, attempt: Attempt) -> bool:
        """Mark the attempt as ended; return False if it was already."""
        was_live = self._live.pop(attempt.attempt_id, None) is not None
        if not self._live:
            self._idle.set()
        return was_live

    def forget(self, attempt: Attempt) -> None:
        """Remove an ended attempt, its files and its token."""
        del self._all[attempt.attempt_id]
        room = self.room(attempt)
        remove(room.paths.error(attempt.attempt_id))
        remove(room.paths.result(attempt.attempt_id))
        remove(room.paths.notice(attempt.attempt_id))
        if attempt.request.launch.runtime.image:
            remove_tree(room.paths.error(attempt.attempt_id) + OWN_ERRORS)
            remove(env_file_of(room.paths, attempt.attempt_id))
        room.tokens.release(attempt.request)

    async def all_ended(self) -> None:
        """Wait until no attempt is live."""
        await self._idle.wait()
