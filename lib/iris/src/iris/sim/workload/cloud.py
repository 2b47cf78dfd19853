"""A provider without machines: what becomes of each slice is drawn when it is requested."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from iris.autoscale.model import Answer, Outcome
from iris.domain.scale_groups import ScaleGroup

_DONE: Final = Answer(Outcome.DONE)
_STOCK_OUT: Final = Answer(Outcome.STOCK_OUT, "There is no more capacity in the zone")


@dataclass(frozen=True, slots=True)
class Weather:
    """The capacity of a zone over time.

    Args:
        dry: When no slice is to be had, and more are lost: (from, to) in seconds, in order.
        loss_per_hour, dry_loss_per_hour: The rate at which a slice is preempted.
        boot_s: Shortest and longest time from the request until all hosts have joined.
        refusal_s: The time until a stock-out is told.
    """

    dry: tuple[tuple[float, float], ...] = ()
    loss_per_hour: float = 0.0
    dry_loss_per_hour: float = 0.0
    boot_s: tuple[float, float] = (90.0, 240.0)
    refusal_s: float = 20.0

    def is_dry(self, at_s: float) -> bool:
        """Return whether no slice is to be had."""
        return any(begin <= at_s < end for begin, end in self.dry)


def draw_dry_times(source: random.Random, hours: float, wet_h: float, dry_h: float) -> tuple[tuple[float, float], ...]:
    """Return dry times of about `dry_h` hours, which follow others of about `wet_h`."""
    dry, at_s = [], 0.0
    while at_s < hours * 3600:
        at_s += source.expovariate(1 / (wet_h * 3600))
        end_s = at_s + source.expovariate(1 / (dry_h * 3600))
        dry.append((at_s, end_s))
        at_s = end_s
    return tuple(dry)


@dataclass(frozen=True, slots=True)
class Fate:
    """The times of a requested slice, in seconds of the simulation.

    Args:
        answer: The final answer, told at `told_s`.
        told_s: When all hosts join, if it was made.
        lost_s: When it is preempted, unless it was released before.
    """

    answer: Answer
    told_s: float
    lost_s: float = math.inf


class Cloud:
    """Zones with weather, one for each group.

    Args:
        zones: The groups with their weather.
        seed: Decides the fates of slices.
    """

    def __init__(self, zones: Sequence[tuple[ScaleGroup, Weather]], seed: int) -> None:
        self.groups = tuple(group for group, _ in zones)
        self._weather: Mapping[str, Weather] = {group.name: weather for group, weather in zones}
        self._source = random.Random(f"cloud {seed}")

    def request(self, group: ScaleGroup, at_s: float) -> Fate:
        """Return the fate of a slice that is requested now."""
        weather = self._weather[group.name]
        if weather.is_dry(at_s):
            return Fate(_STOCK_OUT, at_s + weather.refusal_s)
        joined_s = at_s + self._source.uniform(*weather.boot_s)
        return Fate(_DONE, joined_s, self._end_of(weather, joined_s))

    def _end_of(self, weather: Weather, at_s: float) -> float:
        left = self._source.expovariate(1)
        edges = [edge for period in weather.dry for edge in period if edge > at_s]
        for edge in (*edges, math.inf):
            rate = (weather.dry_loss_per_hour if weather.is_dry(at_s) else weather.loss_per_hour) / 3600
            if rate and left / rate < edge - at_s:
                return at_s + left / rate
            left -= rate * (edge - at_s) if rate else 0
            at_s = edge
        return math.inf
