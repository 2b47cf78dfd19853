"""Functions of every kind as jobs and as actors' methods: coroutines, generators, and functions that fork."""

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NoReturn

import pytest

from fray.errors import JobFailed
from fray.testing.contract.actor_subjects import ActorTests, create
from fray.testing.contract.callables import NotMadeAgain, fail_deeply, raised_by
from fray.testing.fixture import LONG, BackendFixture
from fray.testing.forks import exit_code_of
from fray.testing.signals import Flag
from fray.types import CallableEntrypoint, Entrypoint, JobStatus
from rigging.errors import InvalidRequest

NOTHING_RUNS = "is a generator function: calling it runs none of its code"


async def set_later(flag: Flag, text: str) -> str:
    """Set a flag from an event loop."""
    await asyncio.sleep(0)
    flag.set(text)
    return text


async def fail_later(where: str) -> None:
    """Raise an exception from an event loop."""
    await asyncio.sleep(0)
    fail_deeply(where)


def shards() -> Iterator[int]:
    """Yield numbers."""
    yield 1


async def later_shards() -> AsyncIterator[int]:
    """Yield numbers from an event loop."""
    yield 1


def exit_in_child(code: int) -> NoReturn:
    """Exit like a program."""
    sys.exit(code)


ENDS: list[tuple[Callable[[], object], int]] = [
    (os.getpid, 0),
    (functools.partial(fail_deeply, "the child"), 1),
    (functools.partial(exit_in_child, 0), 0),
    (functools.partial(exit_in_child, 3), 3),
]
"""Ways for a forked child to leave the function, with the exit status."""


def fork_and_tell(flag: Flag) -> str:
    """Fork a child for each of ENDS, which leaves this function in that way, and return their exit statuses."""
    found = []
    for in_child, _ in ENDS:
        child = os.fork()
        if child == 0:
            return f"child {in_child()}"
        found.append(exit_code_of(child, LONG / 4))
    flag.set(repr(found))
    return flag.text()


async def fork_later(flag: Flag) -> str:
    """Like `fork_and_tell`, from an event loop that works afterwards."""
    text = fork_and_tell(flag)
    return text if text.startswith("child") else await asyncio.to_thread(str, text)


class Mixed:
    """An actor with methods of every kind."""

    async def later(self, number: int) -> int:
        """Double a number from an event loop."""
        await asyncio.sleep(0)
        return 2 * number

    async def fail_later(self, where: str) -> None:
        """Raise an exception from an event loop."""
        await fail_later(where)

    def shards(self) -> Iterator[int]:
        """Yield numbers."""
        yield from shards()

    def total(self) -> int:
        """Use its own generator."""
        return sum(self.shards())

    def fork(self, flag: Flag) -> str:
        """Call `fork_and_tell` in the actor."""
        return fork_and_tell(flag)


class TestFunctions:
    """Callables other than a plain function."""

    def test_a_coroutine_runs_to_its_end(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("later")
        jobs = [
            fray_backend.call(set_later, flag, "from a loop"),
            fray_backend.call(functools.partial(fail_later, "the loop")),
        ]
        assert jobs[0].wait(LONG) is JobStatus.SUCCEEDED
        assert flag.text() == "from a loop"
        assert "no shards in the loop" in str(raised_by(jobs[1]))

    @pytest.mark.parametrize("fn", [shards, later_shards, functools.partial(shards), Mixed().shards])
    def test_a_generator_function_is_refused_by_name(
        self, fray_backend: BackendFixture, fn: Callable[[], object]
    ) -> None:
        with pytest.raises(InvalidRequest, match=rf"shards {NOTHING_RUNS}"):
            fray_backend.call(fn)
        with pytest.raises(InvalidRequest, match=rf"shards {NOTHING_RUNS}"):
            fray_backend.submit(fray_backend.request(Entrypoint(CallableEntrypoint(fn))))

    def test_a_generator_that_comes_out_of_a_function_fails_its_job(self, fray_backend: BackendFixture) -> None:
        assert NOTHING_RUNS in str(raised_by(fray_backend.call(lambda: shards())))

    @pytest.mark.parametrize("fn", [fork_and_tell, fork_later])
    def test_a_forked_child_ends_with_the_function_and_says_nothing_of_the_job(
        self, fray_backend: BackendFixture, fn: Callable[[Flag], object]
    ) -> None:
        flag = fray_backend.flag("children")
        assert fray_backend.call(fn, flag).wait(LONG) is JobStatus.SUCCEEDED
        assert flag.text() == repr([status for _, status in ENDS])

    def test_sys_exit_of_what_the_system_would_cut_to_zero_fails(self, fray_backend: BackendFixture) -> None:
        error = raised_by(fray_backend.call(sys.exit, 256))
        assert isinstance(error, JobFailed)
        assert error.exit_code == 1

    def test_a_group_of_exceptions_comes_back_with_its_members(self, fray_backend: BackendFixture) -> None:
        def fail() -> None:
            odd = NotMadeAgain("device", "on fire")
            odd.add_note("in the cellar")
            raise ExceptionGroup("outer", [odd, ExceptionGroup("inner", [NotMadeAgain("rack", "wet"), KeyError("a")])])

        error = raised_by(fray_backend.call(fail))
        own = error if fray_backend.capabilities.raises_own_exceptions else error.__cause__
        assert isinstance(own, ExceptionGroup)
        odd, inner = own.exceptions
        assert isinstance(odd, NotMadeAgain)
        assert (odd.device, odd.__notes__) == ("device", ["in the cellar"])
        assert isinstance(inner, ExceptionGroup)
        assert [type(error) for error in inner.exceptions] == [NotMadeAgain, KeyError]


class TestActorFunctions(ActorTests):
    """Methods other than a plain function."""

    def test_a_coroutine_is_awaited(self, fray_backend: BackendFixture) -> None:
        mixed = create(fray_backend, Mixed)
        assert mixed.later(4) == 8
        assert mixed.later.remote(5).result(LONG) == 10
        with pytest.raises(LookupError, match="no shards in the loop"):
            mixed.fail_later("the loop")

    def test_a_generator_is_for_the_actor_alone(self, fray_backend: BackendFixture) -> None:
        mixed = create(fray_backend, Mixed)
        assert mixed.total() == 1
        with pytest.raises(ValueError, match=rf"Mixed\.shards {NOTHING_RUNS}"):
            mixed.shards()

    def test_a_forked_child_ends_with_the_method(self, fray_backend: BackendFixture) -> None:
        assert create(fray_backend, Mixed).fork(fray_backend.flag("children")) == repr([status for _, status in ENDS])
