"""A run in words: the progress and lines of a view, log lines, ends of steps, and differences of versions."""

import hashlib
import json
import logging
from typing import Any

import pytest

from marin.execution.report.events import (
    RunEnded,
    RunEvent,
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepProgressed,
    StepQueued,
    StepRetrying,
    StepStarted,
    describe_error,
    notify,
)
from marin.execution.report.log_lines import MOST_CACHED_LINES, LogLines
from marin.execution.report.words import clock_text
from marin.execution.version.differences import WHAT_TO_TYPE, differences


def ended(name: str, status: StepEnd = StepEnd.SUCCEEDED, **fields: Any) -> StepEnded:
    return StepEnded(0, name, f"/p/{name}", status, **fields)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "unknown error"), (ValueError(), "ValueError"), (ValueError("bad"), "ValueError: bad"),
        # It is printed, raised again and stored beside the run's outputs.
        (ValueError("bad token=hf_abcdefghijklmnopqrstuvwxyz0"), "ValueError: bad token=[REDACTED]"),
    ],
)  # fmt: skip
def test_errors_are_described_in_a_line_without_secrets(error: BaseException | None, words: str) -> None:
    assert describe_error(error) == words


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [(record.levelname, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return found


def far(seconds: float) -> StepProgressed:
    return StepProgressed(1000 + seconds, "a", "/p/a", seconds, 200)


# Of each event what a log says, in their order.
SAID: list[tuple[RunEvent, str | None, str | None]] = [
    (RunStarted(0, 3, info_path="/i"), "INFO", "run: 3 step(s), info at /i"),
    (StepQueued(0, "a", "/p/a"), None, None),
    (StepJobQueued(0, "a", "/p/a", "no TPU"), "INFO", "step a: queued: no TPU -> /p/a"),
    (StepJobQueued(0, "a", "/p/a", ""), "INFO", "step a: queued -> /p/a"),
    (StepStarted(0, "a", "/p/a"), "INFO", "step a: running -> /p/a"),
    (far(0), "INFO", "step a: 0/200 (0 %)"),
    (far(59), None, None),
    (far(60), "INFO", "step a: 60/200 (30 %)"),
    (
        StepRetrying(0, "a", "/p/a", 1, "failed", "OSError", 5.0),
        "WARNING", "step a: attempt 1 failed, again in 5 s -> /p/a: OSError",
    ),
    (ended("a", seconds=1.234), "INFO", "step a: done in 1.23 s -> /p/a"),
    (ended("b", seconds=1, queued_seconds=2), "INFO", "step b: done in 1.00 s (2.00 s queued before) -> /p/b"),
    (ended("c", StepEnd.CACHED), "INFO", "step c: already done -> /p/c"),
    (
        ended("d", StepEnd.CACHED, differences=("k: 1 -> 2", "j")),
        "WARNING", "step d: already done -> /p/d (made with other values or code: k: 1 -> 2; j); " + WHAT_TO_TYPE,
    ),
    (RunEnded(0, 2.345), "INFO", "run: 2 done, 2 cached, 0 failed, in 2.3 s"),
    (RunStarted(0, None), "INFO", "run: steps from a stream"),
    (ended("e", StepEnd.FAILED, error="bad"), "ERROR", "step e: failed -> /p/e: bad"),
    (ended("f", StepEnd.FAILED, error="bad", log="/l"), "ERROR", "step f: failed -> /p/f: bad (log: /l)"),
    (
        ended("g", StepEnd.DEP_FAILED, error="bad"),
        "ERROR", "step g: not run, because a dependency failed -> /p/g: bad",
    ),
    (
        ended("h", StepEnd.LOST, error="x"),
        "ERROR", "step h: lost its lease, so its output does not count -> /p/h: x",
    ),
    (
        RunEnded(0, 1, error="KeyboardInterrupt"),
        "ERROR", "run: 0 done, 0 cached, 3 failed, 1 not run, ended by KeyboardInterrupt after 1.0 s",
    ),
]  # fmt: skip


def test_a_log_line_for_each_thing_that_happens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines = LogLines()
    for event, level, words in SAID:
        lines.on_event(event)
        assert logged(caplog) == ([] if level is None else [(level, words)])


@pytest.mark.parametrize(("steps", "named"), [(None, False), (MOST_CACHED_LINES, True), (MOST_CACHED_LINES + 1, False)])
def test_of_many_steps_the_cached_are_counted(steps: int | None, named: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines = LogLines()
    lines.on_event(RunStarted(0, steps))
    logged(caplog)
    lines.on_event(ended("a", StepEnd.CACHED))
    assert (("INFO", "step a: already done -> /p/a") in logged(caplog)) is named
    lines.on_event(ended("a", StepEnd.CACHED, differences=("k",)))
    assert [level for level, _ in logged(caplog)] == ["WARNING"], "what differs is always told"


def test_many_differences_are_told_up_to_a_number(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)  # whatever other tests have left there
    lines = LogLines()
    for _ in range(2):
        lines.on_event(RunStarted(0, 1000))
        for number in range(MOST_CACHED_LINES + 5):
            lines.on_event(ended(f"s{number}", StepEnd.CACHED, differences=("k",)))
        found = logged(caplog)
        assert len(found) == MOST_CACHED_LINES + 1
        assert found[-1][1].startswith("more outputs were made with other unversioned values or code")


def test_an_observer_that_fails_does_not_keep_the_others_from_seeing(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        def on_event(self, event: Any) -> None:
            raise RuntimeError("broken")

    lines = LogLines()
    caplog.set_level(logging.INFO)
    notify([Failing(), lines], StepStarted(0, "a", "/p/a"))
    assert "a run's observer Failing failed on StepStarted" in caplog.text
    assert logged(caplog)[-1] == ("INFO", "step a: running -> /p/a")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0s"), (0, "0.0s"), (5.24, "5.2s"), (59.94, "59.9s"), (60, "1:00"), (185, "3:05"), (3599, "59:59"),
     (3723, "1:02:03")],
)  # fmt: skip
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def version(config: Any = None, dependencies: Any = (), name: str = "n", **more: Any) -> dict[str, Any]:
    return {"name": name, "config": config or {}, "dependencies": list(dependencies), **more}


def words(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [str(found) for found in differences(before, after)]


def test_differences_of_values_and_their_paths() -> None:
    assert words(version({"a": 1}), version({"a": 1})) == []
    assert words(version({"a": [1, 2]}), version({"a": [1, 3]})) == ["a.[1]: 2 -> 3"]
    assert words(version({"a": [1, 2]}), version({"a": [1]})) == ["a: [1, 2] -> [1]"]
    assert words(version({"a": {"b": {"c": 1}}}), version({"a": {"b": {"c": "x"}}})) == ['a.b.c: 1 -> "x"']
    assert words(version({"a": {"b": 1}}), version({"a": 1})) == ['a: {"b": 1} -> 1']
    assert words(version({"a": None}), version({})) == ["a: was null (removed)"]
    assert words(version(name="a"), version(name="b")) == ['name: "a" -> "b"']
    assert words(version({"a": (1,)}), version({"a": [1]})) == []
    assert words({}, version({"a": 1}))[0] == 'name: "n" (new)'
    for size, cut in ((118, False), (119, True)):
        [found] = differences(version({"a": ""}), version({"a": "x" * size}))
        assert len(found.after) == 120
        assert found.after.endswith("...") is cut


def test_differences_of_dependencies() -> None:
    a, b = version({"k": 1}, name="a"), version({"k": 2}, name="a")
    assert words(version(dependencies=[a]), version(dependencies=[b])) == ["dependency a: k: 1 -> 2"]
    top = [version(dependencies=[version(dependencies=[inner], name="mid")]) for inner in (a, b)]
    assert words(*top) == ["dependency mid: dependency a: k: 1 -> 2"]
    assert words(version(dependencies=[a, a]), version(dependencies=[b, b])) == ["dependency a: k: 1 -> 2"], "each once"
    assert words(version(dependencies=["a-111111"]), version(dependencies=["a-222222", "b-3"])) == [
        "dependency [0]: a-111111 -> a-222222", "dependency [1]: b-3 (new)",
    ]  # fmt: skip
    assert words(version(dependencies=["b-3"]), version()) == ["dependency [0]: was b-3 (removed)"]
    [found] = words(version(dependencies=[a]), version(dependencies=[version(name="z")]))
    assert found.startswith("dependency [0]: a-")
    assert " -> z-" in found
    [found] = words(version(pseudo_dependencies=["x-1"]), version())
    assert found == "non-blocking dependency [0]: was x-1 (removed)"
    # One quoted by its hash (it stands deep in a chain), the same written out.
    digits = hashlib.md5(json.dumps(a, sort_keys=True).encode()).hexdigest()[:6]
    assert words(version(dependencies=[f"a-{digits}"]), version(dependencies=[a])) == []
    assert words(version(dependencies=["a-bc89a9"]), version(dependencies=[a])) == [
        f"dependency [0]: a-bc89a9 -> a-{digits}"
    ]
