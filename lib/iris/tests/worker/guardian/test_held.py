"""What a guardian holds of an attempt, and what it tells the worker of it: everything once, and all of it again."""

import base64
import contextlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from iris.rpc.logformat import decode_all
from iris.worker.guardian.held import HeldAttempt
from iris.worker.guardian.requests import common_from, fields_of, fields_of_common, spec_from
from iris.worker.isolation.plan import Mount
from iris.worker.limits.plan import LimitRequest
from iris.worker.processes import CommonSpec, Exit, ProcessSpec, StartFailed, StartFailure
from iris.worker.users.identity import TaskIdentity

NAME = "/u/job/0:0"


class CommandProcess:
    pid = 4711


class Bench:
    """An attempt, what its keeper is told, and a clock."""

    now = 1000

    def __init__(self, **fields: Any) -> None:
        self.told: list[str] = []
        self.held = HeldAttempt(ProcessSpec(NAME, ("true",), {}, "/", **fields), self, lambda: self.now)

    def grew(self, attempt: HeldAttempt) -> None:
        self.told.append(f"grew {attempt.log_size}")

    def ended(self, attempt: HeldAttempt) -> None:
        self.told.append("ended")

    def start(self) -> "Bench":
        self.now += 1
        self.held.started(CommandProcess())  # type: ignore[arg-type]
        return self


def lines(path: Path) -> list[tuple[bytes, bool]]:
    return [(record.data, record.is_stderr) for record in decode_all(path.read_bytes())]


def test_an_end_is_told_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    bench = Bench(log=str(tmp_path / "log"), tail_bytes=4).start()
    bench.held.on_output(False, b"to stdout\n")
    bench.held.on_output(True, b"abc")
    bench.held.on_output(True, b"def")
    bench.held.fenced = "no contact"
    bench.now = 5000
    bench.held.on_exit(Exit(0, 9))
    (told,) = bench.held.news()
    known = {"pid": 4711, "code": 0, "signal": 9, "log_size": bench.held.log_size, "at_ms": 5000}
    assert told == ["ended", NAME, {**known, "tail": base64.b64encode(b"cdef").decode(), "fenced": "no contact"}]
    assert bench.told[-1] == "ended"
    assert lines(tmp_path / "log") == [(b"to stdout", False), (b"abcdef", True)]
    assert bench.held.whole()["end"] == told[2]


def test_lost_output_is_told_and_that_the_log_does_not_say_so(tmp_path: Path) -> None:
    bench = Bench(log=str(tmp_path / "missing" / "log")).start()
    bench.held.on_output(False, b"12345\n")
    bench.held.on_exit(Exit(0, 0))
    ((_, _, end),) = bench.held.news()
    why = "it cannot be written on the worker's disk (No such file or directory)"
    assert end["lost"] == end["unmarked"] == f"6 bytes of output lost: {why}"
    assert end["log_size"] == 0


def test_a_refusal_is_told_after_its_log_which_is_not_kept_open(tmp_path: Path) -> None:
    """The worker may be away for long, and a host that refuses one attempt refuses many."""
    log = tmp_path / "log"
    bench = Bench(log=str(log))
    bench.held.refused(StartFailed("no memory", 126, StartFailure.HOST))
    assert lines(log) == [(b"no memory", True)]
    size = log.stat().st_size
    assert bench.held.news() == [["grew", NAME, size], ["refused", NAME, "host", "no memory", 126]]
    assert bench.held.whole()["refused"] == ["host", "no memory", 126]
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            assert os.readlink(f"/proc/self/fd/{descriptor}") != str(log)


def test_without_a_log_the_tail_is_of_both_streams_and_without_a_tail_nothing_is_kept() -> None:
    tool = Bench(tail_bytes=5).start()
    tool.held.on_output(False, b"out")
    tool.held.on_output(True, b"err")
    tool.held.flush()
    tool.held.on_exit(Exit(1, 0))
    assert base64.b64decode(tool.held.whole()["end"]["tail"]) == b"uterr"
    assert tool.told == ["ended"]
    none = Bench().start()
    none.held.on_output(True, b"err")
    none.held.on_exit(Exit(1, 0))
    assert none.held.whole()["end"] == {"pid": 4711, "code": 1, "signal": 0, "log_size": 0, "at_ms": 1001}


def test_an_end_is_told_in_few_words_where_they_say_all(tmp_path: Path) -> None:
    plain = Bench(log=str(tmp_path / "log"), tail_bytes=5).start()
    plain.held.on_output(False, b"line\n")
    plain.held.on_exit(Exit(3, 0))
    ((verb, name, pid, code, signal, size, at_ms),) = plain.held.news()
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
        assert [item[0] for item in told.held.news()] == ["ended"]


LIMITS = LimitRequest(1, 2, 3, 4, cpu_quota=True)
MOUNTS = (Mount("/b", "/b", "/l", "/o"), Mount("/e", "/e"))
FULL = ProcessSpec(
    NAME, ("echo", "x"), {"A": "\udcff"}, "/work", "ann", "/log", 7, 8000, True, {"n": 1}, MOUNTS, 9, LIMITS,
    TaskIdentity(2000, (44,)),
)  # fmt: skip


@pytest.mark.parametrize("spec", [FULL, ProcessSpec(NAME, ("true",), {}, "/")], ids=["full", "plain"])
def test_a_spec_travels_whole_without_what_is_empty_and_unknown_fields_are_passed_over(spec: ProcessSpec) -> None:
    fields = fields_of(spec)
    assert spec_from(fields | {"of_the_next_release": 1}) == spec
    assert all(fields[name] for name in fields.keys() - {"env"})


def test_what_is_common_travels_whole_and_is_added_to_what_is_not() -> None:
    common = CommonSpec(
        ("echo", "x"), {"A": "a", "B": "b"}, "ann", 7, 9, 8000, {"job": "/a/b"}, LIMITS, TaskIdentity(2000)
    )
    again = common_from(fields_of_common(common) | {"of_the_next_release": 1})
    assert asdict(again) == asdict(common)
    assert fields_of_common(CommonSpec(("true",), {})) == {"argv": ("true",), "env": {}}
    own = ProcessSpec(NAME, (), {"B": "own"}, "/", log="/log", note={"index": 0}, mounts=MOUNTS, common=again)
    assert own.whole() == ProcessSpec(
        NAME, ("echo", "x"), {"A": "a", "B": "own"}, "/", "ann", "/log", 9, 8000, False, {"job": "/a/b", "index": 0},
        MOUNTS, 7, LIMITS, TaskIdentity(2000),
    )  # fmt: skip


@pytest.mark.parametrize(
    "broken",
    [
        {"argv": []},
        {"argv": None},
        {"env": []},
        {"log_limit": "many"},
        {"note": 7},
        {"mounts": [["a"]]},
        {"cwd": ...},
        {"run_as": [0]},
    ],
    ids=lambda broken: "".join(broken),
)
def test_what_cannot_be_run_is_refused(broken: dict[str, Any]) -> None:
    fields = {name: value for name, value in {**fields_of(FULL), **broken}.items() if value is not ...}
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        spec_from(fields)
