"""What a guardian holds of an attempt, and what it tells the worker of it: everything once, and all of it again."""

import base64
import contextlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from iris.rpc.logformat import decode_all
from iris.worker.guardian.held import HeldAttempt, HeldPhase, common_from, fields_of, fields_of_common, spec_from
from iris.worker.isolation.plan import Mount
from iris.worker.processes import CommonSpec, Exit, ProcessSpec, StartFailed, StartFailure

NAME = "/u/job/0:0"


class CommandProcess:
    pid = 4711


class Keeper:
    def __init__(self) -> None:
        self.told: list[str] = []

    def grew(self, attempt: HeldAttempt) -> None:
        self.told.append(f"grew {attempt.log_size}")

    def ended(self, attempt: HeldAttempt) -> None:
        self.told.append("ended")


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Bench:
    """An attempt, its keeper, and a clock."""

    def __init__(self, **fields: Any) -> None:
        self.now = 1000
        self.keeper = Keeper()
        spec = ProcessSpec(NAME, ("true",), {}, "/", **fields)
        self.held = HeldAttempt(spec, self.keeper, lambda: self.now)

    def start(self) -> "Bench":
        self.now += 1
        self.held.started(CommandProcess())  # type: ignore[arg-type]
        return self


def lines(path: Path) -> list[tuple[bytes, bool]]:
    return [(record.data, record.is_stderr) for record in decode_all(path.read_bytes())]


def test_it_is_live_until_it_ends_or_is_refused(tmp_path: Path) -> None:
    bench = Bench()
    assert (bench.held.phase, bench.held.is_live, bench.held.at_ms) == (HeldPhase.QUEUED, True, 1000)
    bench.start()
    assert (bench.held.phase, bench.held.is_live, bench.held.at_ms, bench.held.pid) == (
        HeldPhase.RUNNING,
        True,
        1001,
        4711,
    )
    bench.now = 2000
    bench.held.on_exit(Exit(3, 0))
    assert (bench.held.phase, bench.held.is_live, bench.held.at_ms) == (HeldPhase.ENDED, False, 2000)
    assert bench.held.process is None
    refused = Bench(log=str(tmp_path / "log"))
    refused.now = 3000
    refused.held.refused(StartFailed("no such program: x", 127))
    assert (refused.held.phase, refused.held.is_live, refused.held.at_ms) == (HeldPhase.REFUSED, False, 3000)
    assert lines(tmp_path / "log") == [(b"no such program: x", True)]


def test_a_start_and_growth_are_told_once(tmp_path: Path) -> None:
    bench = Bench(log=str(tmp_path / "log"))
    assert bench.held.news() == []
    bench.start()
    assert bench.held.news() == [["started", NAME, 4711, 1001]]
    assert bench.held.news() == []
    bench.held.on_output(False, b"line\n")
    size = bench.held.log_size
    assert size > 0
    assert bench.keeper.told == [f"grew {size}"]
    assert bench.held.news() == [["grew", NAME, size]]
    assert bench.held.news() == []


def test_an_end_is_told_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    bench = Bench(log=str(tmp_path / "log"), tail_bytes=4).start()
    bench.held.on_output(False, b"to stdout\n")
    bench.held.on_output(True, b"abc")
    bench.held.on_output(True, b"def")
    bench.held.fenced = "no contact"
    bench.now = 5000
    bench.held.on_exit(Exit(0, 9))
    (told,) = bench.held.news()
    assert told == [
        "ended",
        NAME,
        {
            "pid": 4711,
            "code": 0,
            "signal": 9,
            "log_size": bench.held.log_size,
            "at_ms": 5000,
            "tail": base64.b64encode(b"cdef").decode(),
            "fenced": "no contact",
        },
    ]
    assert bench.keeper.told[-1] == "ended"
    assert lines(tmp_path / "log") == [(b"to stdout", False), (b"abcdef", True)]
    assert bench.held.whole()["end"] == told[2]


def test_an_end_without_anything_special_says_nothing_of_it() -> None:
    bench = Bench().start()
    bench.held.on_exit(Exit(0, 0))
    assert bench.held.news() == [["ended", NAME, {"pid": 4711, "code": 0, "signal": 0, "log_size": 0, "at_ms": 1001}]]


def test_lost_output_is_told_and_that_the_log_does_not_say_so(tmp_path: Path) -> None:
    bench = Bench(log=str(tmp_path / "missing" / "log")).start()
    bench.held.on_output(False, b"12345\n")
    bench.held.on_exit(Exit(0, 0))
    ((_, _, end),) = bench.held.news()
    assert end["lost"].startswith("6 bytes of output lost: it cannot be written")
    assert end["unmarked"] == end["lost"]


def test_a_refusal_is_told_after_its_log(tmp_path: Path) -> None:
    bench = Bench(log=str(tmp_path / "log"))
    bench.held.refused(StartFailed("no memory", 126, StartFailure.HOST))
    size = bench.held.log_size
    assert bench.held.news() == [["grew", NAME, size], ["refused", NAME, "host", "no memory", 126]]
    assert bench.held.whole()["refused"] == ["host", "no memory", 126]


def test_the_log_of_a_refusal_is_not_kept_open(tmp_path: Path) -> None:
    """The worker may be away for long, and a host that refuses one attempt refuses many."""
    log = tmp_path / "log"
    Bench(log=str(log)).held.refused(StartFailed("no memory"))
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            assert os.readlink(f"/proc/self/fd/{descriptor}") != str(log)


def test_without_a_log_the_tail_is_of_both_streams_and_without_a_tail_nothing_is_kept() -> None:
    tool = Bench(tail_bytes=5).start()
    tool.held.on_output(False, b"out")
    tool.held.on_output(True, b"err")
    tool.held.on_exit(Exit(1, 0))
    assert base64.b64decode(tool.held.whole()["end"]["tail"]) == b"uterr"
    assert tool.keeper.told == ["ended"]
    none = Bench().start()
    none.held.on_output(True, b"err")
    none.held.on_exit(Exit(1, 0))
    assert "tail" not in none.held.whole()["end"]


def test_an_end_is_told_in_few_words_where_they_say_all(tmp_path: Path) -> None:
    plain = Bench(log=str(tmp_path / "log"), tail_bytes=5).start()
    plain.held.on_output(False, b"line\n")
    plain.held.on_exit(Exit(3, 0))
    ((verb, name, pid, code, signal, size, at_ms),) = plain.held.news(2)
    assert (verb, name, pid, code, signal, size) == ("over", NAME, 4711, 3, 0, plain.held.log_size)
    assert at_ms == plain.held.whole()["end"]["at_ms"]
    for told in (
        Bench(tail_bytes=5).start(),  # a tail
        Bench(log=str(tmp_path / "missing" / "log")).start(),  # lost output
        Bench(log=str(tmp_path / "fenced")).start(),
    ):
        told.held.on_output(True, b"err\n")
        told.held.fenced = "no contact" if "fenced" in told.held.spec.log else ""
        told.held.on_exit(Exit(3, 0))
        assert [item[0] for item in told.held.news(2)] == ["ended"]


def test_a_worker_that_has_just_come_is_told_all_and_then_only_what_is_new(tmp_path: Path) -> None:
    bench = Bench(log=str(tmp_path / "log"), note={"replicas": 3}).start()
    bench.held.on_output(False, b"line\n")
    size = bench.held.log_size
    assert bench.held.whole() == {
        "id": NAME,
        "pid": 4711,
        "log": str(tmp_path / "log"),
        "log_size": size,
        "at_ms": 1001,
        "note": {"replicas": 3},
        "refused": None,
        "end": None,
    }
    assert bench.held.news() == [], "the start and the log's size are part of it"
    bench.held.on_output(False, b"more\n")
    assert bench.held.news() == [["grew", NAME, bench.held.log_size]]


def test_one_that_waits_for_its_start_has_that_told_later() -> None:
    bench = Bench()
    assert bench.held.whole()["pid"] == 0
    bench.start()
    assert bench.held.news() == [["started", NAME, 4711, 1001]]


def test_an_unfinished_line_is_stored_while_it_lives(tmp_path: Path) -> None:
    bench = Bench(log=str(tmp_path / "log")).start()
    bench.held.on_output(False, b"50%")
    bench.held.flush_timer = Timer()  # type: ignore[assignment]
    bench.held.flush()
    assert bench.held.flush_timer is None
    assert lines(tmp_path / "log") == [(b"50%", False)]
    assert bench.keeper.told[-1] == f"grew {bench.held.log_size}"
    bench.held.on_exit(Exit(0, 0))
    size, told = bench.held.log_size, list(bench.keeper.told)
    bench.held.flush()
    assert (bench.held.log_size, bench.keeper.told) == (size, told)
    Bench().start().held.flush()  # without a log there is nothing to do


def test_timers_end_with_it() -> None:
    bench = Bench().start()
    timers = Timer(), Timer()
    bench.held.grace_timer, bench.held.flush_timer = timers  # type: ignore[assignment]
    bench.held.on_exit(Exit(0, 0))
    assert all(timer.cancelled for timer in timers)
    assert (bench.held.grace_timer, bench.held.flush_timer) == (None, None)


FULL = ProcessSpec(
    NAME,
    ("python", "a.py"),
    {"A": "1"},
    "/work",
    sharer="/u/job",
    log="/logs/x",
    tail_bytes=100,
    fence_ms=5000,
    dies_with_worker=True,
    note={"replicas": 2},
    mounts=(Mount("/a", "/b", "/c", "/d"),),
    log_limit=9,
)


@pytest.mark.parametrize("spec", [FULL, ProcessSpec(NAME, ("true",), {}, "/")])
def test_what_is_to_be_run_comes_over_as_it_is(spec: ProcessSpec) -> None:
    assert spec_from(fields_of(spec)) == spec


def test_what_is_empty_is_not_sent() -> None:
    assert set(fields_of(ProcessSpec(NAME, ("true",), {}, "/"))) == {"id", "argv", "env", "cwd"}


@pytest.mark.parametrize(
    "common",
    [
        CommonSpec(("true",), {"A": "1"}, sharer="/u/job", log_limit=9, tail_bytes=100, fence_ms=5000, note={"n": 2}),
        CommonSpec(("true",), {}),
    ],
)
def test_what_many_have_in_common_comes_over_as_it_is_without_what_is_empty(common: CommonSpec) -> None:
    fields = fields_of_common(common)
    assert asdict(common_from(fields)) == asdict(common)
    assert all(fields[name] for name in fields if name != "env")


@pytest.mark.parametrize(
    "broken", [{"argv": []}, {"argv": None}, {"env": []}, {"log_limit": "many"}, {"note": 7}, {"mounts": [["a"]]}]
)
def test_what_cannot_be_run_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        spec_from({**fields_of(FULL), **broken})
    fields = fields_of(FULL)
    del fields["cwd"]
    with pytest.raises(KeyError):
        spec_from(fields)
