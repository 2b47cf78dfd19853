"""Gradient descent on x², logged by the examples of trackers."""

from collections.abc import Iterator

RATES = (0.01, 0.1, 0.4)


def losses(rate: float, steps: int = 50) -> Iterator[float]:
    """Yield the loss of each step."""
    x = 10.0
    for _ in range(steps):
        yield x * x
        x -= rate * 2 * x
