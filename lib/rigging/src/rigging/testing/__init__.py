"""Fakes that other packages' tests may use."""

from rigging.testing.clock import FakeClock

__all__ = ["FakeClock"]
