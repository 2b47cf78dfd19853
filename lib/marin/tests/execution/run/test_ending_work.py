"""How an interrupted run ends: who is told, which processes get which signal, and what is said of what goes on."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from marin.execution.run.interruption import AtWork, EndingTerms, ExitLeases, end_work
from rigging.errors import Unavailable

TERMS = EndingTerms(notice_seconds=1, grace_seconds=10)


class Lease:
    def __init__(self, label: str = "a", held: bool = True, trouble: Exception | None = None) -> None:
        self.label, self.output_path, self.held = label, f"/p/{label}", held
        self.done: list[str] = []
        self.trouble = trouble

    def interrupt(self) -> None:
        self.done.append("interrupt")

    def leave(self) -> None:
        self.done.append("leave")
        if self.trouble is not None:
            raise self.trouble


class Processes:
    """Processes that steps have started; they end when they get the signal in `dies_of`, or by themselves."""

    pids = (7, 8)

    def __init__(self, found: bool, dies_of: signal.Signals | None) -> None:
        self._found, self._dies_of = found, dies_of
        self.log: list[Any] = []
        self.asked: tuple[Any, int] | None = None

    def __call__(self, threads: Any, since: int) -> "Processes":
        self.asked = (list(threads), since)
        return self

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *error: object) -> None:
        self.log.append("closed")

    def __bool__(self) -> bool:
        return self._found

    def wait(self, seconds: float) -> bool:
        self.log.append(seconds)
        return self._dies_of is None

    def signal(self, number: signal.Signals) -> None:
        self.log.append(number.name)


@pytest.fixture
def at_exit() -> list[Callable[[], None]]:
    return []


Ending = Callable[..., tuple[list[float], list[Any]]]


@pytest.fixture
def ending(at_exit: list[Callable[[], None]]) -> Ending:
    """End work; how long its end was waited for, and what was done to processes."""
    exit_leases = ExitLeases(at_exit.append)

    def ending(
        *leases: Lease, found: bool = False, dies_of: signal.Signals | None = None, ended: bool = True, **options: Any
    ) -> tuple[list[float], list[Any]]:
        processes, waits = Processes(found, dies_of), list[float]()
        in_process = options.pop("in_process", True)
        given = {"jobs_are_stopping": False, "by_keyboard": False, "since": 5, **options}
        seams: Any = {"open_processes": processes, "exit_leases": exit_leases}

        def all_ended(seconds: float) -> bool:
            waits.append(seconds)
            return ended

        working = [AtWork(lease, None, 100 + number, in_process) for number, lease in enumerate(leases)]
        end_work(working, all_ended, terms=TERMS, **given, **seams)
        assert processes.asked == (
            ([100 + number for number in range(len(leases))], 5) if in_process and leases else ([], 1 << 62)
        )
        return waits, processes.log

    return ending


def test_every_step_is_told_and_those_without_processes_are_waited_for_shortly(ending: Ending) -> None:
    leases = [Lease("a"), Lease("b")]
    assert ending(*leases) == ([1], ["closed"])
    assert [lease.done for lease in leases] == [["interrupt"], ["interrupt"]]


@pytest.mark.parametrize(
    ("options", "waited", "log"),
    [
        ({"jobs_are_stopping": True, "in_process": False}, [10], []),
        ({"found": True, "dies_of": signal.SIGTERM}, [10], ["SIGTERM", 10, "SIGKILL"]),
        # A terminal has told them by itself: they are given time.
        ({"found": True, "by_keyboard": True}, [10], [1, "SIGKILL"]),
        ({"found": True, "by_keyboard": True, "dies_of": signal.SIGTERM}, [10], [1, "SIGTERM", 10, "SIGKILL"]),
    ],
    ids=["jobs", "processes", "ended by the keyboard", "deaf to the keyboard"],
)
def test_processes_are_killed(ending: Ending, options: dict[str, Any], waited: list[float], log: list[Any]) -> None:
    assert ending(Lease(), **options) == (waited, [*log, "closed"])


def test_what_goes_on_is_named_while_its_lease_is_held(ending: Ending, caplog: pytest.LogCaptureFixture) -> None:
    ending(Lease("a"), Lease("b", held=False), ended=False)
    assert "the function of step a still runs: no other run can make /p/a before it ends" in caplog.text
    assert "step b" not in caplog.text
    caplog.clear()
    ending(Lease("a"))
    assert caplog.text == ""


def test_at_exit_a_last_word_is_written_for_what_is_still_held(
    ending: Ending, at_exit: list[Callable[[], None]], caplog: pytest.LogCaptureFixture
) -> None:
    held, over, broken = Lease("a"), Lease("b", held=False), Lease("c", trouble=Unavailable("no store"))
    ending(held, over, broken)
    later = Lease("d")
    ending(later)
    assert len(at_exit) == 1, "once is enough"
    at_exit[0]()
    assert [lease.done for lease in (held, over, broken, later)] == [
        ["interrupt", "leave"], ["interrupt"], ["interrupt", "leave"], ["interrupt", "leave"],
    ]  # fmt: skip
    assert "could not write the status of /p/c: no store" in caplog.text


def test_what_has_ended_since_is_left_alone(ending: Ending, at_exit: list[Callable[[], None]]) -> None:
    first, second = Lease("a"), Lease("b")
    ending(first)
    first.held = False
    ending(second)
    for leave in at_exit:
        leave()
    assert first.done == ["interrupt"]
    assert second.done[:2] == ["interrupt", "leave"]
