"""The curves of outputs, cached in memory. A long one is sampled at once, and read whole in the background."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from marin.browser.confined import Confined, ConfinedFiles
from marin.output_files import METRICS_FILE
from marin.recorded.deciding.thinning import Curve, curve_of
from marin.recorded.reading.curve_rows import Curves
from marin.recorded.reading.metrics import metric_lines, read_metrics, sources
from rigging.errors import MarinError

_MOST_BYTES: Final = 256 << 20
_QUICK_BYTES: Final = 256 << 10
_SAMPLES: Final = 100
_HEAD_BYTES: Final = 1024
_SWITCH_SECONDS: Final = 2e-4
_USUAL_SWITCH_SECONDS: Final = sys.getswitchinterval()
_PAUSE_SECONDS: Final = 0.5
_BETWEEN_PAUSES_SECONDS: Final = 1.5
_FRESH_SECONDS: Final = 10
_OTHERS_COST: Final = 8
_POINT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class OutputCurves:
    """The curves of an output.

    Attributes:
        curves: The curve of each metric.
        is_whole: Whether all points are known, save those of the last seconds; else they are a sample.
    """

    curves: Mapping[str, Curve]
    is_whole: bool


class CurveStore:
    """Read the curves of outputs. Threads may share it.

    Args:
        place: The storage root.
        most_bytes: Memory for curves. Of the least recently used ones only the outlines are kept.
    """

    def __init__(self, place: Confined, most_bytes: int = _MOST_BYTES) -> None:
        self._place = place
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[object, float, Mapping[str, Curve]]] = OrderedDict()
        self._others: dict[str, tuple[float, int, int]] = {}
        self._pending: set[str] = set()
        self._asked = -math.inf
        self._stopped = threading.Event()
        self._reader = ThreadPoolExecutor(1, "marin-curves")

    def read(self, output: str) -> OutputCurves:
        """Return the curves of an output: at once what is known of them, and later all.

        Args:
            output: The output's name.
        """
        cost, mark = self._mark(output)
        with self._lock:
            seen, read, curves = self._known.get(output, (None, -math.inf, {}))
            # What grows all the time is not read all the time.
            if seen == mark or (cost > _QUICK_BYTES and time.monotonic() - read < _FRESH_SECONDS):
                self._known.move_to_end(output)
                return OutputCurves(curves, True)
        if cost <= _QUICK_BYTES:
            return OutputCurves(self._read(output, mark), True)
        with self._lock:
            if output not in self._pending:
                self.give_way()
                self._pending.add(output)
                self._reader.submit(self._read_later, output, mark)
        return OutputCurves(curves or self._sample(f"{output}/{METRICS_FILE}"), False)

    def give_way(self) -> None:
        """Leave the processor to a page for a moment, now and then: the next output in the background waits."""
        now = time.monotonic()
        if now - self._asked > _BETWEEN_PAUSES_SECONDS:  # pages that ask all the time must not stop it
            self._asked = now

    def stop(self) -> None:
        """Read nothing more in the background."""
        self._stopped.set()
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _mark(self, output: str) -> tuple[int, object]:
        """Return how long an output takes to read, in bytes of lines, and what changes with its curves."""
        try:
            entry = self._place.entry(f"{output}/{METRICS_FILE}")
        except MarinError:
            with self._lock:
                looked, size, mark = self._others.get(output, (-math.inf, 0, 0))
            if time.monotonic() - looked > _FRESH_SECONDS:
                found = sources(ConfinedFiles(self._place, output))
                size, mark = sum(found.values()), hash(tuple(found.items()))
                with self._lock:
                    self._others[output] = (time.monotonic(), size, mark)
            return (_OTHERS_COST * size, mark)
        return (entry.size, (entry.size, entry.modified))

    def _read_later(self, output: str, mark: object) -> None:
        self._stopped.wait(max(0.0, self._asked + _PAUSE_SECONDS - time.monotonic()))
        # A thread that computes usually gives way every 5 ms: a page that reads fifty files would wait 5 ms for each.
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            self._read(output, mark)
        finally:
            sys.setswitchinterval(_USUAL_SWITCH_SECONDS)
            with self._lock:
                self._pending.discard(output)

    def _read(self, output: str, mark: object) -> Mapping[str, Curve]:
        curves = _outlined(read_metrics(ConfinedFiles(self._place, output))[0])
        with self._lock:
            self._known[output] = (mark, time.monotonic(), curves)
            self._shrink()
        return curves

    def _shrink(self) -> None:
        """Keep the outlines of the oldest curves, or nothing, if all points take too much memory."""
        spare = self._most_bytes // _POINT_BYTES - sum(_size(kept) for *_, kept in self._known.values())
        for output, (mark, read, kept) in [*self._known.items()]:
            if spare >= 0:
                return
            outlines = {name: Curve(curve.outline, curve.outline) for name, curve in kept.items()}
            self._known[output] = (mark, read, outlines)
            spare += _size(kept) - _size(outlines)
        while spare < 0 and len(self._known) > 1:
            spare += _size(self._known.popitem(last=False)[1][2])

    def _sample(self, name: str) -> Mapping[str, Curve]:
        """Return the points of lines at equal distances in a file of metrics; none in a bucket, where each would be a
        request.
        """
        if not self._place.is_local:
            return {}
        lines: list[bytes] = []
        try:
            with self._place.open(name) as file:
                size = os.fstat(file.fileno()).st_size
                part = 2 * max(map(len, os.pread(file.fileno(), _HEAD_BYTES, 0).split(b"\n"))) + 2
                for number in range(_SAMPLES):
                    found = os.pread(file.fileno(), part, max(0, (size - part) * number // (_SAMPLES - 1)))
                    lines.append(found[found.find(b"\n") + 1 : found.rfind(b"\n")])
        except (MarinError, OSError):
            return {}
        return _outlined(metric_lines(b"\n".join(lines)))


def _outlined(curves: Curves) -> dict[str, Curve]:
    return {name: curve_of(points) for name, points in curves.items()}


def _size(curves: Mapping[str, Curve]) -> int:
    return sum(len(curve.points[0]) for curve in curves.values())
