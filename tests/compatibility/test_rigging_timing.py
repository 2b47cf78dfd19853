"""rigging.timing as older programs call it."""

import datetime
import threading
import time

import pytest

from rigging.timing import Deadline, Duration, ExponentialBackoff, RateLimiter, Timestamp, retry_with_backoff
from rigging.timing.retries import RETRY_PAUSES

NOON = Timestamp.from_ms(1_706_702_400_123)


@pytest.mark.compatible("Timestamp.epoch_ms()", since="0.1.0")
@pytest.mark.compatible("Timestamp.epoch_seconds()", since="0.1.0")
@pytest.mark.compatible("Timestamp.add_ms(milliseconds)", since="0.1.0")
def test_a_timestamp_counts_from_the_epoch():
    assert NOON.epoch_ms() == 1_706_702_400_123
    assert NOON.epoch_seconds() == 1_706_702_400.123
    assert NOON.add_ms(-123).epoch_ms() == 1_706_702_400_000
    assert NOON.add_ms(5) == NOON.add(Duration.from_ms(5))


@pytest.mark.compatible("Timestamp.age_ms()", since="0.1.0")
def test_a_timestamp_has_an_age():
    created_at = Timestamp.from_ms(int(time.time() * 1000) - 60_000)
    assert 60_000 <= created_at.age_ms() < 90_000


@pytest.mark.compatible("Timestamp.as_formatted_date()", since="0.1.0")
@pytest.mark.compatible("Timestamp.as_short_time()", since="0.1.0")
def test_a_timestamp_is_shown_in_utc():
    assert NOON.as_formatted_date() == "2024-01-31T12:00:00.123000+00:00"
    assert datetime.datetime.fromisoformat(NOON.as_formatted_date()).timestamp() == NOON.epoch_seconds()
    assert NOON.as_short_time() == "12:00:00"


@pytest.mark.compatible("Duration + Duration, Duration * number", since="0.1.0")
def test_durations_are_added_and_multiplied():
    assert Duration.from_seconds(1) + Duration.from_ms(500) == Duration.from_ms(1500)
    assert Duration.from_seconds(30) * 2 == Duration.from_minutes(1)
    assert Duration.from_ms(3) * 0.5 == Duration.from_ms(1)


@pytest.mark.compatible("retry_with_backoff(fn, *, retryable?, on_retry(error, attempt)?)", since="0.1.0")
def test_everything_is_retried_unless_said_otherwise():
    errors = [KeyError("a"), OSError("b")]
    told = []

    def call():
        if errors:
            raise errors.pop(0)
        return "done"

    quick = ExponentialBackoff(initial=0.001, maximum=0.002)
    result = retry_with_backoff(
        call, backoff=quick, on_retry=lambda error, attempt: told.append((type(error), attempt))
    )
    assert result == "done"
    assert told == [(KeyError, 0), (OSError, 1)]


@pytest.mark.compatible("retry_with_backoff(fn): pauses from 0.5 s to 10 s", since="0.1.0")
def test_retries_begin_half_a_second_apart(caplog):
    errors = [OSError("busy")]

    def call():
        if errors:
            raise errors.pop()
        return time.monotonic()

    started = time.monotonic()
    assert 0.4 < retry_with_backoff(call) - started < 5
    pauses = RETRY_PAUSES.copy()
    lengths = [pauses.next_interval() for _ in range(12)]
    assert lengths[0] == pytest.approx(0.5, rel=0.2)
    assert lengths[1] == pytest.approx(1.0, rel=0.2)
    assert 8 < max(lengths) <= 10


@pytest.mark.compatible("RateLimiter.wait(cancel?) -> bool", since="0.1.0")
def test_a_wait_for_the_next_run_can_be_cancelled():
    limiter = RateLimiter(interval_seconds=3600)
    assert limiter.wait() is True
    stop = threading.Event()
    stop.set()
    assert limiter.wait(cancel=stop) is False
    limiter.reset()
    assert limiter.wait(cancel=stop) is True, "it may run at once"


@pytest.mark.compatible("RateLimiter.should_run(now=), time_until_next(now=), mark_run(now=)", since="0.1.0")
def test_a_rate_limiter_takes_the_time_as_an_argument():
    limiter = RateLimiter(interval_seconds=10.0)
    assert limiter.should_run(now=100.0)
    assert not limiter.should_run(now=109.0)
    assert limiter.time_until_next(now=109.0) == pytest.approx(1.0)
    assert limiter.should_run(now=110.0)
    limiter.mark_run(now=115.0)
    assert not limiter.should_run(now=124.0)


@pytest.mark.compatible("Deadline.remaining_ms(now=), remaining_seconds(now=), raise_if_expired(now=)", since="0.1.0")
def test_a_deadline_takes_the_time_as_an_argument():
    deadline = Deadline.after(NOON, Duration.from_seconds(30))
    soon = NOON.add_ms(10_000)
    assert deadline.remaining_ms(now=soon) == 20_000
    assert deadline.remaining_seconds(now=soon) == 20.0
    deadline.raise_if_expired("too late", now=soon)
    with pytest.raises(TimeoutError, match="too late"):
        deadline.raise_if_expired("too late", now=NOON.add_ms(30_000))
    assert deadline.remaining_ms(now=NOON.add_ms(40_000)) == 0
