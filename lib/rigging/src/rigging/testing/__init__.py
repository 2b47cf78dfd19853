"""Fakes and helpers that other packages' tests may use."""

from rigging.testing.clock import FakeClock
from rigging.testing.contention import compete_for_lease

__all__ = ["FakeClock", "compete_for_lease"]
