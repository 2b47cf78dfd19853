"""The cost of copies: all reserved before the first byte moves, each settled by itself, the rest given back."""

from collections.abc import Callable, Sequence
from itertools import groupby
from types import TracebackType
from typing import Self

from rigging.copying.request import CopyRequest
from rigging.filesystem.budget import Reservation, TransferBudget, current_budget
from rigging.filesystem.prefix_table import Prefix, crosses_regions
from rigging.prefixes.prefix_store import PrefixStore


class TransferCharge:
    """Charges one copy: reserved before bytes move, given back unless they moved and the copy stands."""

    __slots__ = ("_reservation", "_reserve", "_url", "bytes_moved")

    def __init__(self, reserve: Callable[[int, str], Reservation] | None, url: str) -> None:
        self._reserve = reserve
        self._url = url
        self._reservation: Reservation | None = None
        self.bytes_moved = 0

    def reserve(self, n: int) -> Callable[[int], None]:
        """Reserve `n` bytes instead of what was reserved before; returns the counter of bytes that move."""
        self.cancel()
        if self._reserve is not None:
            self._reservation = self._reserve(n, self._url)
        return self._moved

    def settle(self) -> None:
        """Keep what moved as crossed."""
        if self._reservation is not None:
            self._reservation.settle(self.bytes_moved)

    def cancel(self) -> None:
        """Give back what was reserved."""
        if self._reservation is not None:
            self._reservation.release()
        self._reservation = None
        self.bytes_moved = 0

    def _moved(self, n: int) -> None:
        self.bytes_moved += n


class BudgetReservation:
    """Bytes reserved in the budget for all files of one transfer; thread-safe.

    At the end of its block it gives back what no file has taken: files that others have copied, parts that were there.
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
        """Reserve what `files` cost.

        One file alone is reserved when it is claimed: of many who want it at once, only its copier pays.

        Args:
            files: The whole transfer.
            destination: The local prefix.
            label: Names the files in an error; by default the first of them.
            budget: None for the budget in force.

        Raises:
            TransferBudgetExceeded: Not all of it fits; nothing is reserved.
        """
        charged = bytes_charged(files, destination) if len(files) > 1 else 0
        if not label and files:
            label = files[0].source_url + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        return cls((budget or current_budget()).reserve(charged, label), destination.prefix)

    def charge_for(self, request: CopyRequest) -> TransferCharge:
        """Return the charge of a file, or of several from one source of which it is the first."""
        crosses = crosses_regions(request.source.prefix, self._destination)
        return TransferCharge(self._whole.take if crosses else None, request.source_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._whole.release()


def bytes_charged(files: Sequence[CopyRequest], destination: PrefixStore) -> int:
    """Return how many bytes of `files` count against the budget."""
    charged = 0
    for source, some in groupby(files, key=_source):
        if crosses_regions(source.prefix, destination.prefix):
            charged += sum(request.version.size for request in some)
    return charged


def _source(request: CopyRequest) -> PrefixStore:
    return request.source
