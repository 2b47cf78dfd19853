"""Combines many outcomes into one commit and one list of effects."""

from iris.core.state.changes import Changes, Reduction
from iris.domain.effects import Effect


class Batch:
    """Merges outcomes that were reduced and applied in sequence. The last record of an entity wins.

    Merged `changes` are for the store. The view has already applied each outcome separately.
    """

    __slots__ = ("changes", "effects")

    def __init__(self) -> None:
        self.changes = Changes()
        self.effects: list[Effect] = []

    def add(self, outcome: Reduction) -> None:
        """Add the next outcome."""
        new = outcome.changes
        if new.replaced:
            self._drop_tasks_of_replaced(new)
        if new.updated:
            self.changes.updated |= new.updated
        self.changes.jobs.update(new.jobs)
        self.changes.tasks.update(new.tasks)
        if new.workers:
            self.changes.workers.update(new.workers)
        if new.budgets:
            self.changes.budgets.update(new.budgets)
        if new.endpoints:
            self.changes.endpoints.update(new.endpoints)
        if new.checkpoints:
            self.changes.checkpoints += new.checkpoints
        if new.stopping:
            self.changes.stopping.update(new.stopping)
        if new.lost:
            self.changes.lost.update(new.lost)
        if new.usage:
            self.changes.usage.update(new.usage)
        if new.lending:
            self.changes.lending.update(new.lending)
        if new.prefilled:
            self.changes.prefilled.update(new.prefilled)
        self.effects.extend(outcome.effects)

    def _drop_tasks_of_replaced(self, new: Changes) -> None:
        # The earlier job of that name may have had more tasks; they must not be written after the deletion.
        tasks = self.changes.tasks
        for name in [name for name, task in tasks.items() if task.job_id in new.replaced]:
            del tasks[name]
        self.changes.replaced |= new.replaced

    def __bool__(self) -> bool:
        return bool(self.effects) or bool(self.changes)
