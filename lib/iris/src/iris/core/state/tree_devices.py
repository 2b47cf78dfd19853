"""Accelerators of one worker that reservations hold for the jobs of their trees."""

from iris.core.state.booking import Booking


class TreeDevices:
    """Accelerators of one tree of jobs on one worker: a job of the tree uses what its reservation holds.

    Attributes:
        held: How many reservations hold. stopping: How many of these end soon. used: How many other jobs have.
    """

    __slots__ = ("held", "stopping", "used")

    def __init__(self, used: int) -> None:
        self.held = 0
        self.stopping = 0
        self.used = used

    @property
    def taken(self) -> int:
        """Accelerators that jobs of other trees cannot have."""
        return max(self.held, self.used)

    @property
    def lent(self) -> int:
        """Accelerators that are held and that further jobs of the tree may have."""
        return max(0, self.held - self.stopping - self.used)

    def shift(self, booking: Booking, count: int) -> None:
        """Count accelerators of a booking; below 0: give them back."""
        if booking.reserves:
            self.held += count
            self.stopping += count if booking.stopping else 0
        else:
            self.used += count
