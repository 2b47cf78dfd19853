"""The curves of outputs, cached in memory. A long one is sampled at once, and read whole in the background."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from marin.browser.confined import Confined, ConfinedFiles
from marin.output_files import METRICS_FILE
from marin.recorded.deciding.thinning import Points
from marin.recorded.reading.metrics import Curves, metric_lines, read_metrics
from rigging.errors import MarinError

_MOST_BYTES: Final = 512 << 20
_QUICK_BYTES: Final = 256 << 10
_SAMPLES: Final = 200
_SAMPLE_BYTES: Final = 512
_POINT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class OutputCurves:
    """The curves of an output.

    Attributes:
        curves: Steps and values of each metric.
        is_whole: Whether all points are known; else they are a sample.
    """

    curves: Mapping[str, Points]
    is_whole: bool


class CurveStore:
    """Read the curves of outputs. Threads may share it.

    Args:
        place: The storage root.
        most_bytes: Memory for curves. The least recently used ones are dropped.
    """

    def __init__(self, place: Confined, most_bytes: int = _MOST_BYTES) -> None:
        self._place = place
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[object, Mapping[str, Points]]] = OrderedDict()
        self._pending: set[str] = set()
        self._reader = ThreadPoolExecutor(1, "marin-curves")

    def read(self, output: str) -> OutputCurves:
        """Return the curves of an output: at once what is known of them, and later all.

        Args:
            output: The output's name.
        """
        mark = self._mark(output)
        with self._lock:
            seen, curves = self._known.get(output, (None, {}))
            if seen == mark:
                self._known.move_to_end(output)
                return OutputCurves(curves, True)
        size = mark[0]
        if size <= _QUICK_BYTES:
            return OutputCurves(self._read(output, mark), True)
        with self._lock:
            if output not in self._pending:
                self._pending.add(output)
                self._reader.submit(self._read_later, output, mark)
        return OutputCurves(curves or self._sample(f"{output}/{METRICS_FILE}", size), False)

    def stop(self) -> None:
        """Read nothing more in the background."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _mark(self, output: str) -> tuple[int, float | None]:
        """Return what changes with the curves: size and time of the recorded metrics, else the time of the output."""
        for name in (f"{output}/{METRICS_FILE}", output):
            try:
                entry = self._place.entry(name)
            except MarinError:
                continue
            return (entry.size, entry.modified)
        return (0, None)

    def _read_later(self, output: str, mark: object) -> None:
        try:
            self._read(output, mark)
        finally:
            with self._lock:
                self._pending.discard(output)

    def _read(self, output: str, mark: object) -> Mapping[str, Points]:
        curves = _points(read_metrics(ConfinedFiles(self._place, output))[0])
        with self._lock:
            self._known[output] = (mark, curves)
            sizes = {name: sum(len(steps) for steps, _ in kept.values()) for name, (_, kept) in self._known.items()}
            while len(self._known) > 1 and _POINT_BYTES * sum(sizes.values()) > self._most_bytes:
                sizes.pop(self._known.popitem(last=False)[0])
        return curves

    def _sample(self, name: str, size: int) -> Mapping[str, Points]:
        """Return the points of lines at equal distances in a file of metrics."""
        lines: list[bytes] = []
        try:
            with self._place.open(name) as file:
                for number in range(_SAMPLES):
                    file.seek(max(0, (size - _SAMPLE_BYTES) * number // (_SAMPLES - 1)))
                    whole = file.read(_SAMPLE_BYTES).split(b"\n")[1:-1]
                    lines += whole[:1] if number < _SAMPLES - 1 else whole[-1:]
        except (MarinError, OSError):
            return {}
        return _points(metric_lines(b"\n".join(lines)))


def _points(curves: Curves) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for name, curve in curves.items():
        steps = sorted(curve)
        found[name] = (array("d", steps), array("d", map(curve.__getitem__, steps)))
    return found
