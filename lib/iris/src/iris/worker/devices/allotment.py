"""Allots the accelerators of this host to attempts."""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from iris.domain.resources import Device
from iris.worker.devices.found import Chip
from iris.worker.devices.holders import Holders

_BOUNDS: Final = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}


class ChipsHeld(OSError):
    """A process that is no live attempt's still uses the accelerators."""


@dataclass(frozen=True, slots=True)
class Chips:
    """The accelerators of one host: those that it offers, and how to see who uses them.

    Args:
        device: Kind, variant and number.
        chips: The accelerators; empty if the worker does not allot them, e.g. those of an embedded cluster's hosts.
        holders: Returns the processes that use accelerators.
        prepare: Called before accelerators are given to an attempt while no other attempt has any.
        patience_s: How long an attempt waits for accelerators that another process uses, before the host is cordoned.
    """

    device: Device | None = None
    chips: tuple[Chip, ...] = ()
    holders: Holders = lambda _: {}
    prepare: Callable[[], None] = lambda: None
    patience_s: float = 60.0


NO_CHIPS: Final = Chips()


class Allotment:
    """Records which attempt has which accelerators. An attempt keeps them until its end.

    Args:
        host: The accelerators of the host.
    """

    def __init__(self, host: Chips = NO_CHIPS) -> None:
        self._host = host
        self._owners: dict[str, str] = {}  # by name of the chip

    @property
    def patience_s(self) -> float:
        """How long an attempt waits for accelerators that another process uses, in seconds."""
        return self._host.patience_s

    def take(self, owner: str, wanted: Device | None) -> tuple[str, ...]:
        """Return the names of an attempt's accelerators; empty if it needs none.

        Args:
            owner: The attempt; its earlier accelerators are given back.
            wanted: What it requests.

        Raises:
            ChipsHeld: A process still uses them, or another attempt has them.
        """
        self.release(owner)
        if wanted is None or not self._host.chips:
            return ()
        blocks = self._blocks(wanted.count)
        free = [block for block in blocks if not any(chip.name in self._owners for chip in block)]
        if not free:
            raise ChipsHeld(errno.EBUSY, f"other attempts have the {wanted.kind.upper()} chips of this host")
        if not self._owners:
            self._host.prepare()
        held = self._host.holders([chip for block in free for chip in block])
        for block in free:
            if not any(chip.node in held for chip in block):
                names = tuple(chip.name for chip in block)
                self.restore(owner, names)
                return names
        node, who = next(iter(held.items()))
        raise ChipsHeld(errno.EBUSY, f"{node} is in use by {who}, which no live attempt here owns")

    def restore(self, owner: str, names: Sequence[str]) -> None:
        """Record the accelerators of an attempt that an earlier worker process started."""
        self._owners.update(dict.fromkeys(names, owner))

    def release(self, owner: str) -> None:
        """Take back the accelerators of an attempt."""
        if self._owners:
            self._owners = {name: other for name, other in self._owners.items() if other != owner}

    def variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return the variables by which libtpu or CUDA use only these accelerators.

        A task with all TPU chips of its host gets none: libtpu knows the shape of the whole slice.
        """
        if not names or self._host.device is None:
            return {}
        if self._host.device.kind == "gpu":
            return {"CUDA_VISIBLE_DEVICES": ",".join(names)}
        if len(names) == len(self._host.chips):
            return {}
        return {
            "TPU_VISIBLE_CHIPS": ",".join(names),
            "TPU_CHIPS_PER_PROCESS_BOUNDS": _BOUNDS.get(len(names), f"1,{len(names)},1"),
            "TPU_PROCESS_BOUNDS": "1,1,1",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        }

    def devices(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return what a container needs of these accelerators: device files for TPUs, CDI names for GPUs."""
        if self._host.device is not None and self._host.device.kind == "gpu":
            return tuple(f"nvidia.com/gpu={name}" for name in names)
        return tuple(chip.node for chip in self._host.chips if chip.name in names)

    def _blocks(self, count: int) -> Iterator[tuple[Chip, ...]]:
        """Return candidates: neighbours on the board for TPUs, in any order for GPUs."""
        chips = self._host.chips
        if self._host.device is not None and self._host.device.kind == "gpu":
            ours = [chip for chip in chips if chip.name not in self._owners]
            idle = [chip for chip in ours if chip.node not in self._host.holders(ours)]
            chips = tuple(sorted(ours, key=lambda chip: chip not in idle))
            if len(chips) >= count:
                yield chips[:count]
            return
        for first in range(0, len(chips) - count + 1, count):
            yield chips[first : first + count]
