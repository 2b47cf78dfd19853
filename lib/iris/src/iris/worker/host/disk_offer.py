"""The disk that a worker offers, updated only if the previous offer must be wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from iris.domain.resources import Resources

_NOTABLE_BYTES: Final = 1024 * 1024
_NOTABLE_SHARE: Final = 20
"""A change must also exceed this share of the offer."""


def next_offer(offered: int, free: int, reserved: int) -> int:
    """Return the bytes of disk to offer.

    The live attempts may have used any part of their reserved disk. So the right offer is between `free` and `free +
    reserved`, and a previous offer in this range is kept.

    Args:
        offered: The current offer.
        free: Bytes that are currently free.
        reserved: Bytes reserved for live attempts.
    """
    wanted = min(max(offered, free), free + reserved)
    change = abs(wanted - offered)
    is_notable = change >= _NOTABLE_BYTES and change * _NOTABLE_SHARE >= offered
    return wanted if is_notable or (change and not wanted) else offered


class CapacityOffer:
    """The resources that a worker currently offers.

    Args:
        capacity: The initial offer.
        free_disk: Returns the bytes of free disk; None to keep the disk of `capacity`.
    """

    def __init__(self, capacity: Resources, free_disk: Callable[[], int] | None = None) -> None:
        self.capacity = capacity
        self._free_disk = free_disk

    def renew(self, reserved_disk: int) -> bool:
        """Update the offer; return whether `capacity` has changed.

        Args:
            reserved_disk: Bytes reserved for live attempts.
        """
        if self._free_disk is None:
            return False
        try:
            free = self._free_disk()
        except OSError:
            return False  # what cannot be seen is not known to have changed
        disk = next_offer(self.capacity.disk_bytes, free, reserved_disk)
        if disk == self.capacity.disk_bytes:
            return False
        self.capacity = replace(self.capacity, disk_bytes=disk)
        return True
