"""Transfer budgets limit how many bytes cross regions. Bytes are counted before they move.

Traffic between regions costs money, so every byte is reserved first, and unused reservations are returned.
`mirror_budget(gb)` opens a budget for a block. Outside of blocks a process-wide budget applies, limited by
MARIN_MIRROR_BUDGET_GB.

Inheritance: a filesystem created in a block belongs to it, whatever thread uses it. For filesystems created later,
asyncio tasks inherit the context. Threads do not (before Python 3.14), so the first `mirror_budget` of a process wraps
`threading.Thread.start` permanently: a thread or executor worker started while a budget is in force charges that budget
for its whole life, and so do its own threads. Threads that were running before the block are unaffected. A forked
process counts its own copy of the budget; `budget_environment()` passes the remaining budget to other processes.

The wrapper of Python's own method is needed because a step's function creates its own pools. Without the wrapper, all
of 8 files that a `ThreadPoolExecutor` opens by `fsspec.open("mirror://...")` are charged to the process's 10 GB instead
of the block's budget. A start with its join takes about 50 us, with or without the wrapper.
"""

import contextlib
import contextvars
import functools
import logging
import math
import numbers
import os
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Self, TypeVar

from rigging.errors import BudgetExceeded, InvalidRequest
from rigging.process.fork_lock import ForkLock

logger = logging.getLogger(__name__)

#: Bytes of one GB in budgets.
GB = 2**30
MARIN_MIRROR_BUDGET_ENV = "MARIN_MIRROR_BUDGET_GB"
DEFAULT_BUDGET_GB = 10.0

# One lock for all budgets: it is held for a few additions only.
_counting = ForkLock()


N = TypeVar("N", int, float)


class TransferBudgetExceeded(BudgetExceeded):
    """The transfer was refused before it began, because it would exceed the budget."""


class TransferBudget:
    """A number of bytes that may cross regions; thread-safe."""

    __slots__ = ("__weakref__", "_epoch", "_limit_bytes", "_used_bytes")

    def __init__(self, limit_bytes: int | None = None) -> None:
        """Create a budget of `limit_bytes`; None for the process's limit, MARIN_MIRROR_BUDGET_GB."""
        self._limit_bytes = _checked_bytes(_default_limit() if limit_bytes is None else limit_bytes, "limit_bytes")
        self._used_bytes = 0
        self._epoch = 0

    @property
    def bytes_used(self) -> int:
        """The bytes that crossed, plus those reserved for running transfers."""
        return self._used_bytes

    @property
    def limit_bytes(self) -> int:
        """The maximum of `bytes_used`."""
        return self._limit_bytes

    @property
    def bytes_left(self) -> int:
        """The bytes that can still be reserved; never negative."""
        with _counting:
            return max(0, self._limit_bytes - self._used_bytes)

    def reserve(self, n: int, path: str) -> "Reservation":
        """Reserve `n` bytes before they move. Settle the reservation in a `with` statement.

        Args:
            n: The number of bytes about to cross.
            path: The path being read, for the message.

        Raises:
            TransferBudgetExceeded: The bytes do not fit, and nothing is reserved. Zero bytes always fit.
        """
        wanted = _checked_bytes(n, f"the size of {path}")
        with _counting:
            used, limit, epoch = self._used_bytes, self._limit_bytes, self._epoch
            fits = wanted == 0 or used + wanted <= limit
            if fits:
                self._used_bytes = used + wanted
        if not fits:
            raise TransferBudgetExceeded(_exceeded_message(path, wanted, used, limit))
        return Reservation(self, wanted, path, epoch)

    def record(self, n: int | None = None, path: str = "", *, size: int | None = None) -> None:
        """Count `n` bytes of `path` as crossed.

        Args:
            n: The number of bytes.
            path: The path that was read, for the message.
            size: Alias of `n`.

        Raises:
            TransferBudgetExceeded: The bytes do not fit, and are not counted.
        """
        moved = _either("n", n, "size", size)
        with self.reserve(moved, path) as reservation:
            reservation.settle(moved)

    def reset(self, limit_bytes: int | None = None) -> None:
        """Reset the used bytes to zero, and the limit if one is given.

        Earlier reservations no longer count, and settling them changes nothing.
        """
        limit = None if limit_bytes is None else _checked_bytes(limit_bytes, "limit_bytes")
        with _counting:
            self._used_bytes = 0
            self._epoch += 1
            if limit is not None:
                self._limit_bytes = limit

    def adjust(self, difference: int, epoch: int) -> None:
        """Correct the used bytes by `difference`, unless the budget was reset since `epoch`. Called by reservations."""
        with _counting:
            if epoch == self._epoch:
                self._used_bytes += difference

    def __repr__(self) -> str:
        return f"TransferBudget({gib(self._used_bytes)} of {gib(self._limit_bytes)} used)"


class Reservation:
    """Bytes reserved in a budget. They are returned unless `settle` reports that they moved.

    Args:
        budget: The budget.
        bytes_reserved: The number of bytes.
        path: The path being moved, for errors.
        epoch: The number of the budget's last reset. Reservations from before a later reset are not returned.
    """

    __slots__ = ("_budget", "_closed", "_epoch", "bytes_reserved", "path")

    def __init__(self, budget: TransferBudget, bytes_reserved: int, path: str, epoch: int) -> None:
        self._budget = budget
        self._epoch = epoch
        self._closed = False
        self.bytes_reserved = bytes_reserved
        self.path = path

    def settle(self, actual_bytes: int) -> None:
        """Keep `actual_bytes` as crossed and return the rest. Only the first call counts.

        More than the reservation is counted too, even beyond the limit: those bytes have moved, and the next
        reservation is refused.
        """
        actual = _checked_bytes(actual_bytes, f"the bytes moved of {self.path}")
        with _counting:
            if self._closed:
                return
            self._closed = True
        self._budget.adjust(actual - self.bytes_reserved, self._epoch)
        if actual > self.bytes_reserved:
            logger.warning("%s: %d bytes crossed, but only %d were reserved", self.path, actual, self.bytes_reserved)

    def take(self, n: int, path: str) -> "Reservation":
        """Split off `n` of these bytes as a separate reservation. Missing bytes are newly reserved.

        This refuses a transfer of many files as a whole before it begins, and settles each file separately.

        Raises:
            TransferBudgetExceeded: The missing bytes do not fit. Nothing is split off.
        """
        wanted = _checked_bytes(n, f"the size of {path}")
        with _counting:
            taken = 0 if self._closed else min(wanted, self.bytes_reserved)
            self.bytes_reserved -= taken
        if taken == wanted:
            return Reservation(self._budget, wanted, path, self._epoch)
        try:
            missing = self._budget.reserve(wanted - taken, path)
        except TransferBudgetExceeded:
            with _counting:
                self.bytes_reserved += taken
            raise
        if missing._epoch == self._epoch:
            missing.bytes_reserved += taken
        return missing

    def release(self) -> None:
        """Return everything that is not settled."""
        self.settle(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


_in_context: contextvars.ContextVar[TransferBudget | None] = contextvars.ContextVar(
    "marin_transfer_budget", default=None
)
_of_thread: weakref.WeakKeyDictionary[threading.Thread, TransferBudget] = weakref.WeakKeyDictionary()


def current_budget() -> TransferBudget:
    """Return the current budget: that of the innermost `mirror_budget` block, else the process's.

    Raises:
        InvalidRequest: MARIN_MIRROR_BUDGET_GB is not a number of GB.
    """
    return block_budget() or _process.current()


@contextlib.contextmanager
def mirror_budget(gb: float | None = None, *, budget_gb: float | None = None) -> Iterator[TransferBudget]:
    """Give the block, and the filesystems, threads and tasks it starts, a separate budget of `gb` GB (2^30 bytes).

    A nested block has its own budget and does not charge the outer one.

    Args:
        gb: The limit.
        budget_gb: Alias of `gb`.
    """
    budget = TransferBudget(_bytes_of_gb(_either("gb", gb, "budget_gb", budget_gb), "mirror_budget"))
    _let_threads_inherit()
    token = _in_context.set(budget)
    try:
        yield budget
    finally:
        _in_context.reset(token)


def set_mirror_budget(budget_gb: float) -> contextvars.Token[TransferBudget | None]:
    """Set a budget of `budget_gb` GB until `reset_mirror_budget`. Prefer `mirror_budget`, which resets it by itself.

    Returns:
        A token for `reset_mirror_budget`, in the same context.
    """
    budget = TransferBudget(_bytes_of_gb(budget_gb, "set_mirror_budget"))
    _let_threads_inherit()
    return _in_context.set(budget)


def reset_mirror_budget(token: contextvars.Token[TransferBudget | None]) -> None:
    """Restore the budget from before `set_mirror_budget` returned `token`."""
    _in_context.reset(token)


def budget_environment() -> dict[str, str]:
    """Return the variables that pass the remaining budget to another process."""
    return {MARIN_MIRROR_BUDGET_ENV: repr(current_budget().bytes_left / GB)}


def gib(n: int) -> str:
    """Return `n` bytes in words: "3 bytes", "1.50 MB", "2.00 GB" (powers of 1024)."""
    for unit, size in (("GB", GB), ("MB", 2**20), ("KB", 2**10)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} bytes"


def block_budget() -> TransferBudget | None:
    """Return the budget of the innermost surrounding `mirror_budget` block; None outside of blocks."""
    budget = _in_context.get()
    if budget is not None or not _of_thread:
        return budget
    return _of_thread.get(threading.current_thread())


class ProcessBudget:
    """The budget outside of blocks. MARIN_MIRROR_BUDGET_GB sets its limit and may change at any time."""

    def __init__(self) -> None:
        self._made: tuple[str, TransferBudget] | None = None

    def current(self) -> TransferBudget:
        """Return the budget with the environment's current limit. The used bytes do not change.

        Raises:
            InvalidRequest: MARIN_MIRROR_BUDGET_GB is not a number of GB.
        """
        text = os.environ.get(MARIN_MIRROR_BUDGET_ENV, "").strip()
        made = self._made
        if made is not None and made[0] == text:
            return made[1]
        fresh = TransferBudget()
        with _counting:
            budget = fresh if self._made is None else self._made[1]
            budget._limit_bytes = fresh._limit_bytes
            self._made = (text, budget)
        return budget


_process = ProcessBudget()


def _default_limit() -> int:
    text = os.environ.get(MARIN_MIRROR_BUDGET_ENV, "").strip()
    try:
        return _bytes_of_gb(float(text or DEFAULT_BUDGET_GB), MARIN_MIRROR_BUDGET_ENV)
    except ValueError:
        raise InvalidRequest(
            f"{MARIN_MIRROR_BUDGET_ENV}={text!r} is not a number of GB, for example 10 or 0.5"
        ) from None


@functools.cache
def _let_threads_inherit() -> None:
    start = threading.Thread.start

    @functools.wraps(start)
    def start_with_budget(self: threading.Thread) -> None:
        budget = block_budget()
        if budget is not None:
            _of_thread[self] = budget
        start(self)

    threading.Thread.start = start_with_budget  # type: ignore[method-assign]


def _checked_bytes(n: int, what: str) -> int:
    if n < 0:
        raise InvalidRequest(f"{what} is {n}: a number of bytes cannot be negative")
    return int(n)


def _bytes_of_gb(gb: object, what: str) -> int:
    if isinstance(gb, bool) or not isinstance(gb, numbers.Real):
        raise InvalidRequest(f"{what}: {gb!r} is a {type(gb).__name__}, not a number of GB")
    amount = float(gb)
    if not math.isfinite(amount) or amount < 0:
        raise InvalidRequest(f"{what}: {gb} GB is not a limit; give a finite number of GB, 0 or more")
    return round(amount * GB)


def _exceeded_message(path: str, wanted: int, used: int, limit: int) -> str:
    need = (used + wanted) / GB
    return (
        f"{path}: reading {gib(wanted)} ({wanted} bytes) across regions would exceed the transfer budget: "
        f"{gib(used)} used of {gib(limit)}. Use data in this region, or raise the limit to at least {need:.3g} GB: "
        f"`with mirror_budget(gb):` around the code, `budget_gb=` of `mirrored()` in a step's config, "
        f"or {MARIN_MIRROR_BUDGET_ENV} in the environment"
    )


def _either(name: str, value: N | None, other_name: str, other: N | None) -> N:
    """Return the argument that was given under either of its two names."""
    given = value if other is None else other
    if given is None or (value is not None and other is not None):
        raise InvalidRequest(f"give {name}, or {other_name}, which means the same; not both, and not neither")
    return given


class BudgetBinding:
    """Mixin that stores the budget of a filesystem. The constructor must call `bind_budget`."""

    cachable = False  # fsspec would give one block the filesystem of another
    _strip_tokenize_options = ("budget",)  # a pickled one belongs to where it is unpickled
    _bound: TransferBudget | None = None

    def bind_budget(self, budget: TransferBudget | None) -> None:
        """Store this budget. None means the budget of the surrounding block."""
        self._bound = block_budget() if budget is None else budget

    @property
    def budget(self) -> TransferBudget:
        """The budget that this filesystem's reads are charged to."""
        return self._bound or current_budget()
