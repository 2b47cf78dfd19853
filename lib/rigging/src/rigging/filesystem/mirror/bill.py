"""What copies cost: all of them reserved before the first byte moves, each paid for by itself, the rest given back."""

from collections.abc import Callable, Sequence
from itertools import groupby
from types import TracebackType
from typing import Self

from rigging.filesystem.budget import Reservation, TransferBudget, current_budget
from rigging.filesystem.mirror.plan import Wanted
from rigging.filesystem.mirror.regions import Prefix, crosses_regions
from rigging.filesystem.mirror.root import Root


class Bill:
    """Charges one copy: reserved before bytes move, given back unless they moved and the copy stands."""

    __slots__ = ("_reservation", "_reserve", "_url", "bytes_moved")

    def __init__(self, reserve: Callable[[int, str], Reservation] | None, url: str) -> None:
        self._reserve = reserve
        self._url = url
        self._reservation: Reservation | None = None
        self.bytes_moved = 0

    def charge(self, n: int) -> Callable[[int], None]:
        """Reserve `n` bytes instead of what was reserved before; returns what is told of bytes as they move."""
        self.cancel()
        if self._reserve is not None:
            self._reservation = self._reserve(n, self._url)
        return self._moved

    def pay(self) -> None:
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


class Purse:
    """What is reserved for all files of one transfer; thread-safe.

    Left at its end, it gives back what no file has taken: files that others have copied, parts that were there.
    """

    def __init__(self, whole: Reservation, destination: Prefix) -> None:
        self._whole = whole
        self._destination = destination

    @classmethod
    def of(
        cls, files: Sequence[Wanted], destination: Root, label: str = "", budget: TransferBudget | None = None
    ) -> "Purse":
        """Reserve what `files` cost.

        One file alone is reserved when it is claimed: of many who want it at once, only its copier pays.

        Raises:
            TransferBudgetExceeded: Not all of it fits; nothing is reserved.
        """
        wanted = bytes_charged(files, destination) if len(files) > 1 else 0
        if not label and files:
            label = files[0].source_url + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        return cls((budget or current_budget()).reserve(wanted, label), destination.prefix)

    def bill(self, wanted: Wanted) -> Bill:
        """Open a bill for a file, or for several of one source of which it is the first."""
        crosses = crosses_regions(wanted.source.prefix, self._destination)
        return Bill(self._whole.take if crosses else None, wanted.source_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._whole.release()


def bytes_charged(files: Sequence[Wanted], destination: Root) -> int:
    """Return how many bytes of `files` count against the budget."""
    charged = 0
    for source, some in groupby(files, key=_source):
        if crosses_regions(source.prefix, destination.prefix):
            charged += sum(wanted.version.size for wanted in some)
    return charged


def _source(wanted: Wanted) -> Root:
    return wanted.source
