"""Waits for the ends of jobs."""

import asyncio
from collections.abc import Sequence

from iris.core.state.view import ClusterView
from iris.domain.effects import Effect, JobSettled
from iris.domain.ids import JobId
from rigging.errors import Unavailable


class JobWaiters:
    """Wakes waits when jobs have settled: they have ended, and no worker has their attempts any more."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._waits: dict[JobId, dict[_Wait, None]] = {}  # woken in the order in which they came
        self._closed = False

    async def wait(self, job_ids: Sequence[JobId], any_of_them: bool, timeout_s: float) -> bool:
        """Return True once all (or any) of these jobs have settled, False after `timeout_s`.

        Raise NotFound for a job that does not exist, Unavailable when the controller shuts down.

        Args:
            job_ids: The jobs.
            any_of_them: Whether the first settled job ends the wait.
            timeout_s: Seconds.
        """
        for job_id in job_ids:
            self._view.job(job_id)
        waiting = {job_id for job_id in job_ids if not self._view.is_settled(job_id)}
        if not waiting or (any_of_them and len(waiting) < len(set(job_ids))):
            return True
        if timeout_s <= 0:
            return False
        if self._closed:
            raise Unavailable("the controller is shutting down")
        wait = _Wait(waiting, any_of_them)
        for job_id in waiting:
            self._waits.setdefault(job_id, {})[wait] = None
        try:
            async with asyncio.timeout(timeout_s):
                await wait.future
        except TimeoutError:
            return False
        finally:
            for job_id in wait.waiting:
                self._leave(job_id, wait)
        return True

    def completes(self, job_id: JobId) -> bool:
        """Return whether the end of this job would complete a wait."""
        return any(wait.lacks_only(job_id) for wait in self._waits.get(job_id, ()))

    def on_effects(self, effects: Sequence[Effect]) -> None:
        if not self._waits:
            return
        for effect in effects:
            if isinstance(effect, JobSettled):
                for wait in self._waits.pop(effect.job_id, ()):
                    wait.settle(effect.job_id)

    def close(self) -> None:
        """End every wait with Unavailable."""
        self._closed = True
        for wait in {wait: None for waits in self._waits.values() for wait in waits}:
            if not wait.future.done():
                wait.future.set_exception(Unavailable("the controller is shutting down"))

    def _leave(self, job_id: JobId, wait: "_Wait") -> None:
        waits = self._waits.get(job_id)
        if waits is not None:
            waits.pop(wait, None)
            if not waits:
                del self._waits[job_id]


class _Wait:
    def __init__(self, waiting: set[JobId], any_of_them: bool) -> None:
        self.waiting = waiting
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._any = any_of_them

    def lacks_only(self, job_id: JobId) -> bool:
        return self._any or self.waiting == {job_id}

    def settle(self, job_id: JobId) -> None:
        self.waiting.discard(job_id)
        if (self._any or not self.waiting) and not self.future.done():
            self.future.set_result(None)
