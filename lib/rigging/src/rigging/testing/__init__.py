"""Fakes and helpers that other packages' tests may use."""

from rigging.testing.clock import FakeClock, SkewedClock
from rigging.testing.contention import Contest, compete, race_for_takeovers, races_won

__all__ = ["Contest", "FakeClock", "SkewedClock", "compete", "race_for_takeovers", "races_won"]
