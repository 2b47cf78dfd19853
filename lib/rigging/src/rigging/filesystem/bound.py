"""Filesystems that are bound to the transfer budget in force where they are made.

Libraries read from threads of their own, written in C++ (pyarrow, DuckDB): these know nothing of Python's contexts, so
what they read can only be charged by the filesystem that they were given. Made within a `mirror_budget` block, it
charges that block's budget for good, in any thread; made outside of blocks, the budget in force at each call.
"""

from typing import Any

from fsspec import AbstractFileSystem

from rigging.filesystem.budget import TransferBudget, block_budget, current_budget, putting_in_force


class BoundToBudget(type(AbstractFileSystem)):  # type: ignore[misc]
    """The class of classes of such filesystems: fsspec's cached instances are of one block each."""

    @property
    def budget_mark(cls) -> int:
        """The budget's number in fsspec's cache token, 0 outside of blocks."""
        budget = block_budget()
        return 0 if budget is None else budget.mark

    def __call__(cls, *args: Any, budget: TransferBudget | None = None, **kwargs: Any) -> Any:
        if budget is not None:
            with putting_in_force(budget):
                return super().__call__(*args, skip_instance_cache=True, **kwargs)
        if any(callable(value) for value in kwargs.values()):
            kwargs["skip_instance_cache"] = True  # fsspec would tell functions apart by their addresses
        made = super().__call__(*args, **kwargs)
        block = block_budget()
        if block is not None:
            # Each step has a block: what fsspec keeps for ever would grow with their number.
            block.at_end((cls, made._fs_token), lambda: cls._cache.pop(made._fs_token, None))
        return made


class BudgetBinding:
    """Mixin that keeps the budget of a filesystem; its constructor calls `bind_budget`."""

    _extra_tokenize_attributes = ("budget_mark",)
    _bound: TransferBudget | None = None

    def bind_budget(self) -> None:
        """Remember the block that this filesystem is made in."""
        self._bound = block_budget()

    @property
    def budget(self) -> TransferBudget:
        """The budget that reads by this filesystem are charged to."""
        return self._bound or current_budget()
