"""Filesystems that are bound to the transfer budget in force where they are made.

Libraries read from threads of their own, written in C++ (pyarrow, DuckDB): these know nothing of Python's contexts, so
what they read can only be charged by the filesystem that they were given. Made within a `mirror_budget` block, it
charges that block's budget for good, in any thread; made outside of blocks, the budget in force at each call.
"""

from rigging.filesystem.budget import TransferBudget, block_budget, current_budget


class BudgetBinding:
    """Mixin that keeps the budget of a filesystem; its constructor calls `bind_budget`."""

    cachable = False  # fsspec would give one block the filesystem of another
    _strip_tokenize_options = ("budget",)  # a pickled one belongs to where it is unpickled
    _bound: TransferBudget | None = None

    def bind_budget(self, budget: TransferBudget | None) -> None:
        """Remember this budget; None: that of the block that this filesystem is made in."""
        self._bound = block_budget() if budget is None else budget

    @property
    def budget(self) -> TransferBudget:
        """The budget that reads by this filesystem are charged to."""
        return self._bound or current_budget()
