"""Holds all slices and closures in memory, and stores what changes before anybody acts on it."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from iris.autoscale.closures import Closure, after_answer, after_gone, still_true
from iris.autoscale.lives import Lives, after_loss
from iris.autoscale.model import Answer, SliceRecord, SliceState
from iris.domain.events import PlaceClosed, Recorded, SliceChanged
from iris.domain.scale_groups import ScaleGroup
from rigging.errors import MarinError

logger = logging.getLogger(__name__)

KEPT_MS: Final = 3600_000
"""How long a slice that is over is kept: creations of the last hour count."""
_SWEEP_MS: Final = 60_000


class SliceRows(Protocol):
    """The part of the store with slices and closures."""

    def save_slices(
        self,
        slices: Sequence[SliceRecord],
        closures: Sequence[Closure],
        forgotten: Sequence[str],
        opened: Sequence[str],
    ) -> None: ...

    def load_slices(self) -> tuple[list[SliceRecord], list[Closure]]: ...


class SliceBook:
    """The slices of a cluster.

    Args:
        rows: The store.
    """

    def __init__(self, rows: SliceRows) -> None:
        self.slices: dict[str, SliceRecord] = {}
        self.closures: Mapping[str, Closure] = {}
        self.lives: Lives = ()
        self._rows = rows
        self._stored: dict[str, SliceRecord] = {}
        self._stored_closures: Mapping[str, Closure] = {}
        self._unsaved: set[str] = set()
        self._swept_ms = 0
        self._complaint = ""

    def load(self, groups: Iterable[ScaleGroup], now_ms: int) -> None:
        """Read what an earlier controller stored. Idle times begin again: nobody watched meanwhile."""
        slices, closures = self._rows.load_slices()
        self._stored = {record.name: record for record in slices}
        self.slices = {
            name: replace(record, used_ms=now_ms) if record.state is SliceState.JOINED else record
            for name, record in self._stored.items()
        }
        self._stored_closures = {closure.key: closure for closure in closures}
        self.closures = still_true(self._stored_closures, groups)

    def put(self, record: SliceRecord) -> None:
        """Add or replace a slice, in memory."""
        self.slices[record.name] = record
        before = self._stored.get(record.name)
        # When it was used, and how many lists lacked it, is counted anew by the next controller.
        if before is None or replace(record, used_ms=before.used_ms, unlisted=before.unlisted) != before:
            self._unsaved.add(record.name)
        else:
            self._unsaved.discard(record.name)

    def is_stored(self, name: str) -> bool:
        """Return whether a slice is stored in its state: then its provider may be called."""
        return name not in self._unsaved

    def live(self) -> Iterator[SliceRecord]:
        """Yield the slices that are not over, in the order in which they were wanted."""
        return (record for record in self.slices.values() if not record.state.is_over)

    def answer(self, group: ScaleGroup, answer: Answer, now_ms: int, seed: int) -> None:
        """Close or reopen what an answer of the provider says, in memory."""
        self.closures = after_answer(self.closures, group, answer, now_ms, seed)

    def free(self, group: ScaleGroup, now_ms: int) -> None:
        """Note, in memory, that a slice of a group is gone."""
        self.closures = after_gone(self.closures, group, now_ms)

    def lose(self, record: SliceRecord, hosts: tuple[str, ...], now_ms: int) -> None:
        """Note that a slice was lost, and which hosts failed. The next controller does not know it."""
        self.lives = after_loss(self.lives, record, now_ms, hosts)

    def save(self, now_ms: int, record_event: Callable[[Recorded], None]) -> bool:
        """Store all changes, and forget what is over for long. Return whether everything is stored.

        Args:
            now_ms: Unix ms.
            record_event: Adds a line to the history.
        """
        changed = [self.slices[name] for name in self.slices if name in self._unsaved]
        closures = [item for key, item in self.closures.items() if self._stored_closures.get(key) != item]
        opened = [key for key in self._stored_closures if key not in self.closures]
        forgotten = self._forgettable(now_ms)
        if not (changed or closures or opened or forgotten):
            return True
        try:
            self._rows.save_slices(changed, closures, forgotten, opened)
        except MarinError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                logger.warning("slices cannot be stored, so none is created or deleted: %s", error)
            return False
        self._complaint = ""
        for record in changed:
            before = self._stored.get(record.name)
            if before is None or before.state is not record.state:
                why = record.reason or record.words
                logger.info("slice %s is %s%s", record.name, record.state.name.lower(), f": {why}" if why else "")
                record_event(SliceChanged(record.name, record.group, record.state.name.lower(), why))
            self._stored[record.name] = record
        for key in (*(item.key for item in closures), *opened):
            closed = self.closures.get(key)
            record_event(PlaceClosed(key, closed.outcome, closed.words) if closed else PlaceClosed(key, ""))
        for name in forgotten:
            del self.slices[name], self._stored[name]
        self._unsaved.clear()
        self._stored_closures = self.closures
        return True

    def _forgettable(self, now_ms: int) -> list[str]:
        """Return the slices that are over for long, except the newest of each group: its number is never used again.

        Look once a minute.
        """
        if now_ms - self._swept_ms < _SWEEP_MS:
            return []
        self._swept_ms = now_ms
        newest = {record.group: record.name for record in sorted(self.slices.values(), key=lambda item: item.number)}
        return [
            record.name
            for record in self.slices.values()
            if record.state.is_over and now_ms - record.changed_ms > KEPT_MS and newest[record.group] != record.name
        ]
