"""Durations, deadlines, rates and retries.

Stored and sent times are whole milliseconds (`Duration`, `Timestamp`); people write seconds. Waits and deadlines use
the monotonic clock, so that setting the machine's clock neither ends nor prolongs them.
"""

from rigging.timing.measuring import Timer, log_time
from rigging.timing.moments import Deadline, Duration, Timestamp
from rigging.timing.rates import RateLimiter, TokenBucket
from rigging.timing.retries import ExponentialBackoff, retry_with_backoff

__all__ = [
    "Deadline",
    "Duration",
    "ExponentialBackoff",
    "RateLimiter",
    "Timer",
    "Timestamp",
    "TokenBucket",
    "log_time",
    "retry_with_backoff",
]
