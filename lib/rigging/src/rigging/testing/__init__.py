"""Fakes and helpers that other packages' tests may use; contests for leases are in `rigging.testing.contention`."""

from rigging.testing.clock import FakeClock, SkewedClock
from rigging.testing.waiting import eventually, eventually_async

__all__ = ["FakeClock", "SkewedClock", "eventually", "eventually_async"]
