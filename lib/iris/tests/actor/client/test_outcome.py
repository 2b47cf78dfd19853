"""What every call waits for: one end, told once to each who asked."""

import logging
import threading

import pytest

from iris.actor.client.outcome import CallResult, call_apart
from rigging.errors import Conflict


def test_it_ends_once_and_the_first_end_stays() -> None:
    outcome: CallResult[int] = CallResult()
    assert not outcome.ended
    assert not outcome.wait(0)
    assert outcome.succeed(7)
    assert not outcome.succeed(8)
    assert not outcome.fail(Conflict("late"))
    assert outcome.ended
    assert outcome.wait(0)
    assert outcome.get() == 7


def test_an_error_is_raised_to_each_who_asks_and_does_not_grow() -> None:
    outcome: CallResult[int] = CallResult()
    assert outcome.fail(Conflict("no"))
    assert not outcome.succeed(1)
    depths = []
    for _ in range(3):
        with pytest.raises(Conflict, match="no") as raised:
            outcome.get()
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


def test_everyone_is_called_once_at_the_end_and_at_once_after_it() -> None:
    told: list[str] = []
    outcome: CallResult[int] = CallResult(lambda: told.append("first"))
    outcome.on_end(lambda: told.append("second"))
    assert told == []
    outcome.succeed(1)
    outcome.fail(Conflict("late"))
    assert told == ["first", "second"]
    outcome.on_end(lambda: told.append("third"))
    assert told == ["first", "second", "third"]


def test_who_is_told_finds_the_end_there() -> None:
    seen: list[int] = []
    outcome: CallResult[int] = CallResult()
    outcome.on_end(lambda: seen.append(outcome.get()))
    outcome.succeed(7)
    assert seen == [7]


def test_a_callback_that_raises_is_logged_and_keeps_nobody_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise SystemExit(3)

    told: list[int] = []
    outcome: CallResult[int] = CallResult(fails, lambda: told.append(1))
    with caplog.at_level(logging.ERROR):
        assert outcome.succeed(1)
    assert told == [1]
    assert "a callback of an actor's call failed" in caplog.text


def test_users_callbacks_are_called_in_their_order_in_one_thread_of_their_own() -> None:
    called: list[tuple[int, threading.Thread]] = []
    done = threading.Event()

    def fails() -> None:
        raise ValueError("of a user")

    for number in range(50):
        call_apart(lambda number=number: called.append((number, threading.current_thread())))  # type: ignore[misc]
        if number == 25:
            call_apart(fails)
    call_apart(done.set)
    assert done.wait(20)
    assert [number for number, _ in called] == list(range(50))
    (thread,) = {thread for _, thread in called}
    assert thread is not threading.current_thread()
    assert thread.daemon, "it must not keep the process"
