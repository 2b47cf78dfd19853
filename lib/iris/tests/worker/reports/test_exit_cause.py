"""Whose fault a bad end was: by evidence, and the user's without any."""

from pathlib import Path

import pytest

from iris.domain.states import FailureKind
from iris.worker.host.oom import OomKills, oom_counters
from iris.worker.processes import Exit
from iris.worker.reports.exit_cause import DEVICE_EXIT_CODE, classify_exit

FAILED = Exit(1, 0)
KILLED = Exit(0, 9)


@pytest.mark.parametrize(
    "words",
    [
        b"RuntimeError: The TPU is already in use by process with pid 4711. Not attempting to load libtpu.so",
        b"open(/dev/accel0): Device or resource busy",
        b"RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        b"CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        b"NVRM: GPU at 0000:3b:00.0 has fallen off the bus.",
    ],
)
def test_the_words_of_drivers_are_a_device_error_and_are_quoted(words: bytes) -> None:
    tail = b"step 17\n" + words + b"\nat exit\n"
    kind, why = classify_exit(FAILED, tail, True, lambda: False)
    assert kind is FailureKind.DEVICE
    assert why == f"device error: {words.decode()}"


def test_a_task_without_accelerators_cannot_blame_one() -> None:
    tail = b"CUDA error: all CUDA-capable devices are busy or unavailable"
    assert classify_exit(FAILED, tail, False, lambda: False) == (FailureKind.USER, "")
    assert classify_exit(Exit(DEVICE_EXIT_CODE, 0), b"", False, lambda: False) == (FailureKind.USER, "")


def test_the_documented_exit_code_is_a_device_error() -> None:
    kind, why = classify_exit(Exit(DEVICE_EXIT_CODE, 0), b"", True, lambda: False)
    assert (kind, why) == (FailureKind.DEVICE, "device error: it ended with exit code 86")


def test_out_of_memory_of_the_device_is_the_users() -> None:
    assert (
        classify_exit(FAILED, b"CUDA out of memory. Tried to allocate 2 GiB", True, lambda: False)[0]
        is FailureKind.USER
    )


@pytest.mark.parametrize("exit", [KILLED, Exit(137, 0)])
def test_a_kill_is_out_of_memory_only_when_the_kernel_says_so(exit: Exit) -> None:
    assert classify_exit(exit, b"", False, lambda: True)[0] is FailureKind.OOM
    assert classify_exit(exit, b"", False, lambda: False)[0] is FailureKind.USER
    assert classify_exit(FAILED, b"", False, lambda: True)[0] is FailureKind.USER


@pytest.mark.parametrize(
    ("own", "place", "text"),
    [
        ("0::/iris\n", "iris/memory.events", "low 0\noom 1\noom_kill {}\noom_group_kill 0\n"),
        ("9:name=systemd:/\n4:memory:/iris\n", "memory/iris/memory.oom_control", "under_oom 0\noom_kill {}\n"),
    ],
)
def test_each_kill_of_the_kernel_is_claimed_once(tmp_path: Path, own: str, place: str, text: str) -> None:
    counter = tmp_path / place
    counter.parent.mkdir(parents=True)
    counter.write_text(text.format(3))
    kills = OomKills(oom_counters(tmp_path, own))
    assert not kills.claim(), "what was before counts for nobody"
    counter.write_text(text.format(5))
    assert [kills.claim() for _ in range(3)] == [True, True, False]


def test_without_counters_nothing_is_claimed(tmp_path: Path) -> None:
    assert not OomKills([tmp_path / "nothing"]).claim()


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    """Those that the C library keeps for itself have none."""
    assert Exit(0, 33).text() == "killed by signal 33"
    assert KILLED.text() == "killed by SIGKILL"
