"""fray.map: one job per item, with bounded concurrency."""

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fray.mapping import map as fray_map
from fray.testing.fixture import LONG, SMALL, BackendFixture
from fray.testing.signals import Flag, eventually, is_running
from fray.types import ResourceConfig
from rigging.errors import InvalidRequest


def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


def fail_on(bad: int, number: int) -> int:
    """Return the number, or fail on the bad one."""
    if number == bad:
        raise LookupError(f"no shard {number}")
    return number


def start(fray_backend: BackendFixture, fn: Callable[[Any], Any], items: Any, **options: Any) -> Iterator[Any]:
    """Start a map with small jobs."""
    return fray_map(
        fn,
        items,
        client=fray_backend.client,
        **{"resources": SMALL, "environment": fray_backend.environment(), **options},
    )


class TestMap:
    """fray.map."""

    def test_results_in_the_order_of_the_items(self, fray_backend: BackendFixture) -> None:
        first = fray_backend.flag("first")

        def work(number: int) -> int:
            # The first ends after the second.
            first.wait() if number == 0 else first.set()
            return double(number)

        assert list(start(fray_backend, work, range(4), max_in_flight=2)) == [0, 2, 4, 6]
        assert list(start(fray_backend, double, [])) == []

    def test_results_as_jobs_end(self, fray_backend: BackendFixture) -> None:
        last = fray_backend.flag("last")

        def work(number: int) -> int:
            if number == 0:
                last.wait()
            return number

        results = start(fray_backend, work, range(4), max_in_flight=2, ordered=False)
        found = [next(results) for _ in range(3)]
        last.set()
        assert sorted(found) == [1, 2, 3], "one that takes long holds up no other"
        assert list(results) == [0]

    @pytest.mark.parametrize("ordered", [True, False])
    def test_an_endless_iterator_is_taken_as_results_are(self, fray_backend: BackendFixture, ordered: bool) -> None:
        taken: list[int] = []

        def items() -> Iterator[int]:
            for number in itertools.count():
                taken.append(number)
                yield number

        results = start(fray_backend, double, items(), max_in_flight=2, ordered=ordered)
        assert taken == [], "nothing begins before it is asked for"
        found = [next(results) for _ in range(4)]
        results.close()  # type: ignore[attr-defined]
        assert len(taken) <= 4 + 2 - 1
        assert sorted({*found, 0, 2, 4, 6, 8}) == [0, 2, 4, 6, 8]

    @pytest.mark.parametrize("ordered", [True, False])
    def test_the_first_failure_stops_the_rest_at_once(self, fray_backend: BackendFixture, ordered: bool) -> None:
        waits, never = fray_backend.flag("waits"), fray_backend.flag("never")

        def work(number: int) -> int:
            if number == 0:
                waits.set(str(os.getpid()))
                never.wait(LONG)
            else:
                waits.wait()
            return fail_on(1, number)

        results = start(fray_backend, work, itertools.count(), max_in_flight=2, ordered=ordered)
        with pytest.raises(LookupError, match="no shard 1"):
            list(results)
        if not fray_backend.capabilities.separate_processes:
            never.set()
        else:
            pid = int(waits.text())
            eventually(lambda: not is_running(pid), "the job that has not ended is stopped")
        assert next(results, "over") == "over"

    @pytest.mark.parametrize("ordered", [True, False])
    def test_exceptions_in_the_place_of_results(self, fray_backend: BackendFixture, ordered: bool) -> None:
        def work(number: int) -> int:
            return fail_on(1, number)

        found = list(start(fray_backend, work, range(3), ordered=ordered, return_exceptions=True))
        (error,) = [value for value in found if isinstance(value, LookupError)]
        assert str(error) == "no shard 1"
        assert sorted(value for value in found if value is not error) == [0, 2]
        assert not ordered or found[1] is error

    def test_closing_stops_what_runs(self, fray_backend: BackendFixture) -> None:
        begun, go = fray_backend.flag("begun"), fray_backend.flag("go")

        def work(number: int) -> int:
            if number == 1:
                begun.set(str(os.getpid()))
                go.wait()
            else:
                begun.wait()
            return number

        results = start(fray_backend, work, range(5), max_in_flight=2, ordered=False)
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]
        if fray_backend.capabilities.separate_processes:
            pid = int(begun.text())
            eventually(lambda: not is_running(pid), "the job that has not ended is stopped")
        go.set()

    def test_ctrl_c_stops_what_runs(self, fray_backend: BackendFixture) -> None:
        begun = fray_backend.flag("begun")

        def work(begun: Flag) -> None:
            begun.set(str(os.getpid()))
            eventually(lambda: is_there(f"{begun.path}.go"), "it may end", LONG)

        def items() -> Iterator[Flag]:
            yield begun
            begun.wait()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            list(start(fray_backend, work, items(), max_in_flight=2))
        if fray_backend.capabilities.separate_processes:
            pid = int(begun.text())
            eventually(lambda: not is_running(pid), "the job is stopped")
        Flag(f"{begun.path}.go").set()

    def test_retries_and_names(self, fray_backend: BackendFixture) -> None:
        tally = fray_backend.tally("tries")

        def work(number: int) -> int:
            if tally.add() == 1:
                raise OSError("not yet")
            return number

        name = fray_backend.name("mine")
        assert list(start(fray_backend, work, [5], max_retries_failure=1, name=name)) == [5]
        assert list(start(fray_backend, lambda number: number, [6])) == [6], "a lambda's name is none of a job"

    def test_inside_a_job(self, fray_backend: BackendFixture) -> None:
        small, environment = SMALL, fray_backend.environment()

        def parent() -> int:
            import fray

            return sum(fray.map(double, range(3), max_in_flight=2, resources=small, environment=environment))

        assert fray_backend.call(parent).result(LONG) == 6

    @pytest.mark.parametrize(
        ("fn", "items", "options", "problem"),
        [
            ("no function", [1], {}, "'no function' is not callable"),
            (double, 7, {}, "items is int, which cannot be iterated over"),
            (double, [1], {"max_in_flight": 0}, "max_in_flight"),
            (double, [1], {"resources": ResourceConfig(replicas=2)}, "resources.replicas is 2"),
        ],
    )
    def test_what_can_never_work_is_refused_by_the_call(
        self, fray_backend: BackendFixture, fn: Any, items: Any, options: dict[str, Any], problem: str
    ) -> None:
        with pytest.raises(InvalidRequest, match=problem):
            start(fray_backend, fn, items, **options)


def is_there(path: str) -> bool:
    """Return whether a file exists."""
    return os.path.exists(path)
