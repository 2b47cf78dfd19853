"""Reduce a curve to the points that can be seen."""

from __future__ import annotations

from collections.abc import Sequence


def thinned(points: Sequence[tuple[int, float]], most: int) -> tuple[list[int], list[float]]:
    """Return the steps and values of at most `most` points: the lowest and highest of each part of the curve, so that
    no spike is lost, and the last point.

    Args:
        points: Steps with their values, by step.
        most: At least 4.
    """
    if len(points) > most:
        parts = most // 2 - 1
        kept = []
        for part in range(parts):
            piece = points[len(points) * part // parts : len(points) * (part + 1) // parts]
            ends = {min(piece, key=lambda point: point[1]), max(piece, key=lambda point: point[1])}
            kept += sorted(ends)
        points = kept if kept[-1] == points[-1] else [*kept, points[-1]]
    return [step for step, _ in points], [value for _, value in points]
