"""The disk that a worker offers: told again when it is certain that it is not what was told."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from iris.domain.resources import Resources

_NOTABLE_BYTES: Final = 1024 * 1024
_NOTABLE_SHARE: Final = 20
"""A change is told from so many bytes on that are also this share of what is offered."""


def next_offer(offered: int, free: int, reserved: int) -> int:
    """Return the bytes of disk to offer.

    How much of what they were promised the live attempts have used is not known: anything between nothing and all. So
    what there is lies between `free` and `free + reserved`, and an offer in between stands.

    Args:
        offered: The present offer.
        free: Bytes that are free now.
        reserved: Bytes that live attempts were promised.
    """
    wanted = min(max(offered, free), free + reserved)
    change = abs(wanted - offered)
    is_notable = change >= _NOTABLE_BYTES and change * _NOTABLE_SHARE >= offered
    return wanted if is_notable or (change and not wanted) else offered


class CapacityOffer:
    """The resources that a worker offers at present.

    Args:
        capacity: As it is in the beginning.
        free_disk: Bytes that are free now; None: the disk is offered as it is in `capacity`, for good.
    """

    def __init__(self, capacity: Resources, free_disk: Callable[[], int] | None = None) -> None:
        self.capacity = capacity
        self._free_disk = free_disk

    def renew(self, reserved_disk: int) -> bool:
        """Look again; whether `capacity` has changed.

        Args:
            reserved_disk: Bytes that live attempts were promised.
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
