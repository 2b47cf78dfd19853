"""Prepares attempts: fetches the bundle, builds the environment, copies the workspace."""

import logging
from collections.abc import Callable

from iris.domain.states import FailureKind
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.machine import Prepared, PrepareFailed
from iris.worker.attempts.rooms import Rooms
from iris.worker.processes import StartFailed
from iris.worker.types import PreparationFailed

logger = logging.getLogger(__name__)


class Preparation:
    """Prepares attempts for their start.

    Args:
        rooms: Provide the preparers of attempts.
        write_log: Adds a line for users at the end of an attempt's log.
    """

    def __init__(self, rooms: Rooms, write_log: Callable[[Attempt, str], None]) -> None:
        self._rooms = rooms
        self._write_log = write_log

    def is_done(self, attempt: Attempt) -> bool:
        """Return whether the attempt can start without any fetch, build or copy."""
        launch = attempt.request.launch
        if not launch.needs_preparation:
            return True
        room = self._rooms.at(attempt.room)
        prepared = None if room.refusal else room.preparer.ready(launch)
        attempt.prepared = None if prepared is None or room.directories.needs_copy(prepared) else prepared
        return attempt.prepared is not None

    async def prepare(self, attempt: Attempt) -> Prepared | PrepareFailed:
        """Prepare the attempt and return the result."""
        room = self._rooms.at(attempt.room)
        if room.refusal:
            return PrepareFailed(FailureKind.WORKER, room.refusal)
        try:
            prepared = await room.preparer.prepare(attempt.request.launch)
            attempt.prepared = await room.directories.copy(attempt.attempt_id, prepared)
        except PreparationFailed as error:
            self._write_log(attempt, "\n".join(filter(None, [str(error), error.output])))
            return PrepareFailed(error.kind, str(error))
        except StartFailed as error:
            return PrepareFailed(FailureKind.WORKER, str(error))
        except OSError as error:
            logger.exception("%s: preparing failed", attempt.attempt_id)
            return PrepareFailed(FailureKind.WORKER, f"preparing failed: {error}")
        return Prepared()
