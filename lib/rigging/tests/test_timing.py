import copy
import datetime
import logging
import math
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from rigging.errors import DeadlineExceeded, InvalidRequest
from rigging.timing import (
    Deadline,
    Duration,
    ExponentialBackoff,
    RateLimiter,
    Timer,
    Timestamp,
    TokenBucket,
    log_time,
    retry_with_backoff,
)
from support.rigging.clock import FakeClock

UTC = datetime.UTC


def test_duration_conversions() -> None:
    assert Duration.from_seconds(1.5) == Duration.from_ms(1500)
    assert Duration.from_hours(1) == Duration.from_minutes(60) == Duration.from_timedelta(datetime.timedelta(hours=1))
    assert Duration.from_ms(1500).to_seconds() == 1.5
    assert Duration.from_ms(1500).to_timedelta() == datetime.timedelta(seconds=1.5)
    assert Duration.from_seconds(1).add(Duration.from_ms(1)).to_ms() == 1001
    assert Duration.from_ms(1) < Duration.from_ms(2) <= Duration.from_ms(2)


def test_timestamp_conversions_and_order(clock: FakeClock) -> None:
    moment = datetime.datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC)
    stamp = Timestamp.from_datetime(moment)
    assert stamp.to_datetime() == moment
    assert Timestamp.from_ms(stamp.to_ms()) == Timestamp.from_seconds(stamp.to_seconds()) == stamp
    later = stamp.add(Duration.from_ms(1))
    assert later.after(stamp)
    assert stamp.before(later)
    assert not stamp.before(stamp)
    assert stamp < later
    assert Timestamp.now(clock).to_seconds() == clock.now()
    with pytest.raises(InvalidRequest, match="no time zone"):
        Timestamp.from_datetime(datetime.datetime(2024, 1, 1))


def test_deadline_counts_down_to_zero(clock: FakeClock) -> None:
    deadline = Deadline.from_seconds(10, clock=clock)
    assert deadline.remaining_ms() == 10_000
    assert deadline.as_timestamp() == Timestamp.from_seconds(clock.now() + 10)
    clock.advance(9.5)
    assert not deadline.expired()
    deadline.raise_if_expired()
    clock.advance(0.5)
    assert deadline.expired()
    clock.advance(5)
    assert (deadline.remaining_seconds(), deadline.remaining_ms()) == (0.0, 0)
    with pytest.raises(DeadlineExceeded, match="too slow"):
        deadline.raise_if_expired("too slow")
    with pytest.raises(TimeoutError, match="deadline exceeded"):
        deadline.raise_if_expired()


def test_deadline_ignores_steps_of_the_wall_clock(clock: FakeClock) -> None:
    deadline = Deadline.from_ms(10_000, clock=clock)
    clock.step_wall(3600)
    assert not deadline.expired()
    clock.step_wall(-7200)
    clock.advance(10)
    assert deadline.expired()


def test_deadline_after_a_moment(clock: FakeClock) -> None:
    deadline = Deadline.after(Timestamp.from_ms(1000), Duration.from_ms(500))
    assert deadline.as_timestamp() == Timestamp.from_ms(1500)
    assert not deadline.expired(now=Timestamp.from_ms(1499))
    assert deadline.expired(now=Timestamp.from_ms(1500))
    assert deadline.expired(), "long ago by this machine's clock"
    start = Timestamp.now(clock)
    clock.advance(3)
    assert Deadline.after(start, Duration.from_seconds(10), clock=clock).remaining_ms() == 7000, "a part has passed"


def test_deadline_of_the_extremes(clock: FakeClock) -> None:
    never = Deadline.from_seconds(math.inf, clock=clock)
    clock.advance(1e9)
    assert not never.expired()
    assert never.remaining_seconds() == math.inf
    assert never.remaining_ms() > 1e14
    assert never.as_timestamp().to_datetime().year == 9999
    assert Deadline.from_now(Duration.from_seconds(-1), clock=clock).expired()
    assert Deadline.from_seconds(-math.inf, clock=clock).expired()
    assert Deadline.from_seconds(0.0001, clock=clock).remaining_ms() == 1, "a sliver is not nothing"
    with pytest.raises(InvalidRequest, match="NaN"):
        Deadline.from_seconds(math.nan)


def test_timer_and_rate_limiter(clock: FakeClock) -> None:
    timer, limiter = Timer(clock=clock), RateLimiter(5, clock=clock)
    assert limiter.time_until_next() == 0
    assert [limiter.should_run(), limiter.should_run()] == [True, False]
    clock.advance(4)
    assert limiter.time_until_next() == 1
    clock.advance(1)
    assert limiter.should_run()
    limiter.reset()
    assert limiter.should_run()
    clock.advance(3)
    limiter.mark_run()
    clock.advance(3)
    assert not limiter.should_run()
    assert (timer.elapsed_seconds(), timer.elapsed_ms(), timer.elapsed()) == (11, 11_000, Duration.from_seconds(11))
    timer.reset()
    assert timer.elapsed_ms() == 0
    limiter.reset()
    for _ in range(3):
        limiter.wait()
    assert clock.sleeps == [5, 5]
    clock.advance(5)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: limiter.should_run(), range(64))) == 1
    with pytest.raises(InvalidRequest, match="interval_seconds=-1"):
        RateLimiter(-1)


def test_token_bucket_bursts_then_refills(clock: FakeClock) -> None:
    bucket = TokenBucket(10, Duration.from_seconds(10), clock=clock)
    assert bucket.available == 10
    assert bucket.try_acquire(10)
    assert not bucket.try_acquire()
    for _ in range(10):
        clock.advance(0.1)
        assert bucket.available < 2
    assert bucket.available == 1
    assert not bucket.try_acquire(2)
    assert bucket.try_acquire()
    clock.advance(1000)
    assert bucket.available == 10
    given = TokenBucket(2, 1.0)
    tries = [(2, 0), (1, 499), (1, 500), (1, 100)]
    got = [given.try_acquire(count, now=Timestamp.from_ms(ms)) for count, ms in tries]
    assert got == [True, False, True, False], "time that went back refills nothing"


@pytest.mark.parametrize(("capacity", "period"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_token_bucket_refuses_what_can_never_fill(capacity: int, period: float) -> None:
    with pytest.raises(InvalidRequest, match="needs capacity >= 1"):
        TokenBucket(capacity, period)


def test_backoff_grows_to_its_maximum_and_resets() -> None:
    backoff = ExponentialBackoff(initial=1, maximum=5, factor=2, jitter=0)
    assert [backoff.next_interval() for _ in range(5)] == [1, 2, 4, 5, 5]
    assert backoff.copy().next_interval() == 1
    backoff.reset()
    assert backoff.next_interval() == 1
    backoff = ExponentialBackoff()
    assert (backoff.initial, backoff.maximum, backoff.factor, backoff.jitter) == (0.05, 1.0, 1.5, 0.1)
    backoff = ExponentialBackoff(initial=1, maximum=100, factor=1, jitter=0.1, source=random.Random(1))
    intervals = [backoff.next_interval() for _ in range(200)]
    assert 0.9 <= min(intervals) < 0.92
    assert 1.08 < max(intervals) <= 1.1
    backoff = ExponentialBackoff(initial=1, maximum=1, jitter=0.5)
    assert max(backoff.next_interval() for _ in range(200)) == 1


@pytest.mark.parametrize(
    "wrong", [{"initial": 0}, {"initial": 2, "maximum": 1}, {"factor": 0.9}, {"jitter": 1}, {"jitter": -0.1}]
)
def test_backoff_refuses_nonsense(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match="needs 0 < initial <= maximum"):
        ExponentialBackoff(**wrong)  # type: ignore[arg-type]


def test_wait_until(clock: FakeClock) -> None:
    backoff = ExponentialBackoff(initial=1, maximum=10, factor=2, jitter=0, clock=clock)
    start = clock.monotonic()
    assert backoff.wait_until(lambda: clock.monotonic() >= start + 6, 100)
    assert clock.sleeps == [1, 2, 4]
    backoff.reset()
    clock.sleeps.clear()
    asked: list[int] = []
    assert not backoff.wait_until(lambda: bool(asked.append(1)), Duration.from_seconds(5))
    assert clock.sleeps == [1, 2, 2], "the last pause ends with the timeout"
    assert len(asked) == 4, "and once more when the time is over"
    with pytest.raises(DeadlineExceeded, match=r"worker is up \(waited 5 s\)"):
        backoff.wait_until_or_raise(lambda: False, 5, "worker is up")
    backoff.wait_until_or_raise(lambda: True, 0)


class Flaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_retry_until_success(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = OSError("1"), OSError("2")
    flaky = Flaky(first, second)
    told: list[tuple[Exception, int]] = []
    backoff = ExponentialBackoff(initial=1, maximum=10, factor=2, jitter=0, clock=clock)
    result = retry_with_backoff(
        flaky,
        retryable=lambda e: isinstance(e, OSError),
        backoff=backoff,
        on_retry=lambda error, attempt: told.append((error, attempt)),
        operation="upload",
    )
    assert (result, told, clock.sleeps) == ("done", [(first, 0), (second, 1)], [1, 2])
    assert "upload: attempt 1 of 10 failed" in caplog.text


def test_retry_stops_after_its_attempts_or_its_time_or_what_cannot_be_retried(clock: FakeClock) -> None:
    flaky = Flaky(*(OSError(str(n)) for n in range(20)))
    with pytest.raises(OSError, match="9"):
        retry_with_backoff(flaky, retryable=lambda e: True, backoff=ExponentialBackoff(clock=clock))
    assert flaky.calls == 10
    with pytest.raises(InvalidRequest, match="max_attempts=0"):
        retry_with_backoff(flaky, retryable=lambda e: True, max_attempts=0)
    clock.sleeps.clear()
    backoff = ExponentialBackoff(initial=1, maximum=1, jitter=0, clock=clock)
    with pytest.raises(OSError, match="12"):
        retry_with_backoff(flaky, retryable=lambda e: True, backoff=backoff, max_elapsed=2.5)
    assert clock.sleeps == [1, 1]
    once = Flaky(ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        retry_with_backoff(once, retryable=OSError)
    assert once.calls == 1


def test_log_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with log_time("loading", logging.DEBUG):
        pass
    with pytest.raises(ZeroDivisionError), log_time("saving"):
        _ = 1 / 0
    assert [(r.levelno, r.getMessage().rsplit(" ", 2)[0]) for r in caplog.records] == [
        (logging.DEBUG, "loading took"),
        (logging.INFO, "saving failed after"),
    ]


def test_pauses_may_be_sent_to_another_process() -> None:
    sent = ExponentialBackoff(initial=0.25)
    received = pickle.loads(pickle.dumps(sent))
    assert received == sent == copy.deepcopy(sent)
    assert 0.2 < received.next_interval() < 0.3
