"""Users' callbacks: in their order, in a thread of their own."""

import logging
import threading

import pytest

from iris.actor.client.callbacks import call_apart


def test_a_callback_that_ends_its_thread_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise SystemExit(3)

    done = threading.Event()
    with caplog.at_level(logging.ERROR):
        call_apart(fails)
        call_apart(done.set)
        assert done.wait(20)
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
