"""Budget charges for copies. The total is reserved before the first byte moves; each copy is settled separately."""

from collections.abc import Callable, Sequence
from itertools import groupby
from types import TracebackType
from typing import Self

from rigging.copying.request import CopyRequest
from rigging.filesystem.budget import Reservation, TransferBudget, current_budget
from rigging.filesystem.prefix_table import Prefix, crosses_regions
from rigging.prefixes.prefix_store import PrefixStore


class TransferCharge:
    """The charge for one copy, reserved before bytes move. A failed copy returns it."""

    __slots__ = ("_reservation", "_reserve", "_url", "bytes_moved")

    def __init__(self, reserve: Callable[[int, str], Reservation] | None, url: str) -> None:
        self._reserve = reserve
        self._url = url
        self._reservation: Reservation | None = None
        self.bytes_moved = 0

    def reserve(self, n: int) -> Callable[[int], None]:
        """Reserve `n` bytes, replacing the earlier reservation, and return the counter of moved bytes."""
        self.cancel()
        if self._reserve is not None:
            self._reservation = self._reserve(n, self._url)
        return self._moved

    def settle(self) -> None:
        """Charge the bytes that moved."""
        if self._reservation is not None:
            self._reservation.settle(self.bytes_moved)

    def cancel(self) -> None:
        """Return the reserved bytes."""
        if self._reservation is not None:
            self._reservation.release()
        self._reservation = None
        self.bytes_moved = 0

    def _moved(self, n: int) -> None:
        self.bytes_moved += n


class BudgetReservation:
    """Bytes reserved in the budget for all files of one transfer; thread-safe.

    The end of the block returns unused bytes: files that others copied, and parts that already existed.
    """

    def __init__(self, whole: Reservation, destination: Prefix) -> None:
        self._whole = whole
        self._destination = destination

    @classmethod
    def of(
        cls,
        files: Sequence[CopyRequest],
        destination: PrefixStore,
        label: str = "",
        budget: TransferBudget | None = None,
    ) -> "BudgetReservation":
        """Reserve the cost of `files`.

        A single file is reserved only when it is claimed: if several callers want it at once, only the one that copies
        it pays.

        Args:
            files: All files of the transfer.
            destination: The local prefix.
            label: Names the files in an error. Defaults to the first file.
            budget: The budget to charge; None for the current one.

        Raises:
            TransferBudgetExceeded: The transfer does not fit. Nothing is reserved.
        """
        charged = bytes_charged(files, destination) if len(files) > 1 else 0
        if not label and files:
            label = files[0].source_url + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        return cls((budget or current_budget()).reserve(charged, label), destination.prefix)

    def charge_for(self, request: CopyRequest) -> TransferCharge:
        """Return the charge for a file, or for several files of one source that begin with it."""
        crosses = crosses_regions(request.source.prefix, self._destination)
        return TransferCharge(self._whole.take if crosses else None, request.source_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._whole.release()


def bytes_charged(files: Sequence[CopyRequest], destination: PrefixStore) -> int:
    """Return the bytes of `files` that count against the budget."""
    charged = 0
    for source, some in groupby(files, key=_source):
        if crosses_regions(source.prefix, destination.prefix):
            charged += sum(request.version.size for request in some)
    return charged


def _source(request: CopyRequest) -> PrefixStore:
    return request.source
