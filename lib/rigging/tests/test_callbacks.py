import logging
import os
import threading

import pytest

from fray.testing.forks import exit_code_of
from rigging.process.callbacks import call_apart


def test_callbacks_are_called_in_order_in_one_thread_whatever_they_raise(caplog: pytest.LogCaptureFixture) -> None:
    called: list[tuple[int, threading.Thread]] = []
    done = threading.Event()

    def fails() -> None:
        raise SystemExit(3)

    with caplog.at_level(logging.ERROR):
        for number in range(50):
            call_apart(lambda number=number: called.append((number, threading.current_thread())))  # type: ignore[misc]
            if number == 25:
                call_apart(fails)
        call_apart(done.set)
        assert done.wait(20)
    assert "a callback failed" in caplog.text
    assert [number for number, _ in called] == list(range(50))
    (thread,) = {thread for _, thread in called}
    assert thread is not threading.current_thread()
    assert thread.daemon, "it must not keep the process"


def test_a_fork_calls_its_own_callbacks_and_not_its_parents() -> None:
    begun, go_on = threading.Event(), threading.Event()
    called: list[str] = []

    def hold() -> None:
        begun.set()
        go_on.wait(20)

    call_apart(hold)
    assert begun.wait(20)
    call_apart(lambda: called.append("of the parent"))
    child = os.fork()
    if child == 0:
        done = threading.Event()
        call_apart(done.set)
        os._exit(0 if done.wait(10) and not called else 1)
    try:
        assert exit_code_of(child) == 0
    finally:
        go_on.set()
    through = threading.Event()
    call_apart(through.set)
    assert through.wait(20)
    assert called == ["of the parent"]
