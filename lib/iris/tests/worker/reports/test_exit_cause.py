"""Whose fault a bad end was: by evidence, and the user's without any."""

from dataclasses import replace
from pathlib import Path

import pytest

from iris.domain.states import FailureKind
from iris.worker.host.oom import OomKills, oom_counters
from iris.worker.limits.plan import Breach
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
    quoted = f"device error: {words.decode()}"
    assert classify_exit(FAILED, tail, True, lambda: False) == (FailureKind.DEVICE, quoted)


BUSY = b"CUDA error: all CUDA-capable devices are busy or unavailable"
BY_CODE = "device error: the command exited with code 86"
OOM = "out of memory: the kernel killed it to free memory"


@pytest.mark.parametrize(
    ("exit", "tail", "has_accelerator", "was_out_of_memory", "kind", "why"),
    [
        # A task without accelerators cannot blame one.
        (FAILED, BUSY, False, False, FailureKind.USER, ""),
        (Exit(DEVICE_EXIT_CODE, 0), b"", False, False, FailureKind.USER, ""),
        (Exit(DEVICE_EXIT_CODE, 0), b"", True, False, FailureKind.DEVICE, BY_CODE),
        # Out of memory of the device is the user's.
        (FAILED, b"CUDA out of memory. Tried to allocate 2 GiB", True, False, FailureKind.USER, ""),
        # A kill is out of memory only when the kernel says so, and nothing else is.
        *((exit, b"", False, True, FailureKind.OOM, OOM) for exit in (KILLED, Exit(137, 0))),
        *((exit, b"", False, False, FailureKind.USER, "") for exit in (KILLED, Exit(137, 0))),
        (FAILED, b"", False, True, FailureKind.USER, ""),
        # What is known of its own groups needs no guess.
        (replace(KILLED, has_evidence=True), b"", False, True, FailureKind.USER, ""),
        (replace(KILLED, breach=Breach("memory", "too much")), b"", False, False, FailureKind.OOM, "too much"),
        (replace(KILLED, breach=Breach("disk", "too much")), BUSY, True, True, FailureKind.USER, "too much"),
    ],
)
def test_the_cause(
    exit: Exit, tail: bytes, has_accelerator: bool, was_out_of_memory: bool, kind: FailureKind, why: str
) -> None:
    assert classify_exit(exit, tail, has_accelerator, lambda: was_out_of_memory) == (kind, why)


@pytest.mark.parametrize(
    ("exit", "tail", "kind"),
    [
        (FAILED, b"RuntimeError: [gloo/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:3714", FailureKind.PEER),
        (FAILED, b"PollForError: INTERNAL: task 3 is unhealthy", FailureKind.PEER),
        (FAILED, b"ncclRemoteError: remote process exited or there was a network error", FailureKind.PEER),
        (FAILED, b"UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats)", FailureKind.PEER),
        (Exit(139, 0), b"@ 0x7f libtpu.so (unknown)", FailureKind.PEER),
        (Exit(0, 11), b"@ 0x7f libtpu.so (unknown)", FailureKind.PEER),
        (Exit(0, 11), b"Segmentation fault", FailureKind.USER),
        (FAILED, b"open(/dev/accel0): Device or resource busy; PollForError", FailureKind.DEVICE),
    ],
)
def test_a_member_may_have_failed_because_of_another(exit: Exit, tail: bytes, kind: FailureKind) -> None:
    assert classify_exit(exit, tail, True, lambda: False, is_member=True)[0] is kind
    assert classify_exit(exit, tail, True, lambda: False)[0] is (FailureKind.USER if kind is FailureKind.PEER else kind)


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
