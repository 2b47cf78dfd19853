"""With `durability: remote`, delays effects for workers until the commit is replicated."""

import asyncio
from collections.abc import Callable, Sequence

from iris.domain.effects import Effect, ForgetAttempt, StartAttempt, StopAttempt, WithdrawAttempt
from iris.store.replicate.replicator import Replicator

_FOR_WORKERS = StartAttempt | StopAttempt | WithdrawAttempt | ForgetAttempt


class ReplicationBarrier:
    """Passes effects on to the workers in order, each after its commit is replicated."""

    def __init__(self, replicator: Replicator, deliver: Callable[[Sequence[Effect]], None]) -> None:
        self._replicator = replicator
        self._deliver = deliver
        self._held: list[Effect] = []
        self._task: asyncio.Task[None] | None = None

    def on_effects(self, effects: Sequence[Effect]) -> None:
        self._held += (effect for effect in effects if isinstance(effect, _FOR_WORKERS))
        if self._held and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._pass_on())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _pass_on(self) -> None:
        while self._held:
            held, self._held = self._held, []
            await self._replicator.wait()
            self._deliver(held)
        self._task = None
