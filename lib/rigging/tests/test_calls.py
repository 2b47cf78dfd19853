import asyncio
import contextlib
import functools
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from rigging.errors import InvalidRequest
from rigging.process.calls import call_to_end, exit_status, is_generator_function, name_of

# In a child, which must never come back into the test.
_CAME_BACK = 99


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def count() -> Iterator[int]:
    yield 1


async def count_later() -> AsyncIterator[int]:
    yield 1


class Called:
    def __call__(self) -> Iterator[int]:
        yield 1

    def method(self) -> Iterator[int]:
        yield 1


def test_a_coroutine_is_awaited() -> None:
    assert call_to_end(double, 4) == 8
    assert call_to_end(lambda number: double(number), number=5) == 10


@pytest.mark.parametrize("made", [lambda: count(), lambda: count_later(), functools.partial(count)])
def test_a_generator_that_comes_back_is_refused(made: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest, match="generator function: calling it runs none of its code"):
        call_to_end(made)


@pytest.mark.parametrize(
    ("fn", "is_one"),
    [
        *((fn, True) for fn in (count, count_later, functools.partial(count), Called(), Called().method)),
        *((fn, False) for fn in (double, len, Called, functools.partial(int, "1"), lambda: count())),
    ],
)
def test_generator_functions_are_known_without_a_call(fn: Callable[..., object], is_one: bool) -> None:
    assert is_generator_function(fn) is is_one


def test_what_people_call_it() -> None:
    assert name_of(functools.partial(double, 1)) == "double"
    assert name_of(Called()) == "Called"


@pytest.mark.parametrize(
    ("code", "status"), [(None, 0), (0, 0), (False, 0), (3, 3), (-1, 255), (256, 1), (True, 1), ("no shards", 1)]
)
def test_an_exit_status_is_zero_for_success_alone(code: object, status: int) -> None:
    assert exit_status(code) == status


def returns() -> int:
    return 7


def raises() -> NoReturn:
    raise LookupError("no shards in the child")


def exits(code: object) -> NoReturn:
    sys.exit(code)  # type: ignore[arg-type]


def child_status(in_child: Callable[[], object], is_async: bool) -> int:
    """How a child ends that a called function forks; the function itself returns the child's number."""

    def forks() -> int:
        child = os.fork()
        if child == 0:
            in_child()
        return child

    async def forks_in_a_loop() -> int:
        await asyncio.sleep(0)
        return forks()

    process = os.getpid()
    try:
        child = call_to_end(forks_in_a_loop if is_async else forks)
    finally:
        if os.getpid() != process:
            os._exit(_CAME_BACK)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("in_child", "status"),
    [
        (returns, 0),
        (raises, 1),
        (functools.partial(exits, 0), 0),
        (functools.partial(exits, 5), 5),
        (functools.partial(exits, "no shards"), 1),
    ],
)
def test_a_forked_child_ends_where_the_call_ends(in_child: Callable[[], object], status: int, is_async: bool) -> None:
    assert child_status(in_child, is_async) == status


def test_a_child_says_what_it_had_to_say_and_its_threads_end_first(tmp_path: Path) -> None:
    def speak() -> NoReturn:
        print("from the child")
        threading.Thread(target=(tmp_path / "written").write_text, args=("by a thread",)).start()
        raise LookupError("no shards in the child")

    with (
        open(tmp_path / "out", "w") as out,
        open(tmp_path / "err", "w") as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        assert child_status(speak, False) == 1
    assert (tmp_path / "out").read_text() == "from the child\n"
    assert "LookupError: no shards in the child" in (tmp_path / "err").read_text()
    assert (tmp_path / "written").read_text() == "by a thread"


def test_what_is_raised_in_the_process_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []
    monkeypatch.setattr("rigging.process.calls.leave_fork", left.append)
    with pytest.raises(LookupError):
        call_to_end(raises)
    with pytest.raises(SystemExit):
        call_to_end(exits, 3)
    assert left == []
