"""When a disk counts as nearly full, and what is given back of a log."""

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from iris.worker.guardian.log_room import is_nearly_full, is_short, punch, stored_bytes

MB, GB = 1 << 20, 1 << 30


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A file system of which the test says how large it is and what is free, in bytes."""
    sizes = SimpleNamespace(total=0, free=0)

    def found(_: object) -> SimpleNamespace:
        return SimpleNamespace(f_frsize=4096, f_blocks=sizes.total // 4096, f_bavail=sizes.free // 4096)

    monkeypatch.setattr(os, "fstatvfs", found)
    monkeypatch.setattr(os, "statvfs", found)
    return sizes


@pytest.mark.parametrize(
    ("total", "free", "is_full"),
    [
        (100 * GB, 16 * MB, False),
        (100 * GB, 16 * MB - 4096, True),
        (100 * MB, 6 * MB, False),
        (100 * MB, 4 * MB, True),
        (20 * MB, 2 * MB, False),
        (20 * MB, 0, True),
    ],
)
def test_sixteen_megabytes_stay_free_or_the_twentieth_part_of_a_small_disk(
    disk: SimpleNamespace, total: int, free: int, is_full: bool
) -> None:
    disk.total, disk.free = total, free
    assert is_nearly_full(0) is is_full


@pytest.mark.parametrize(
    ("total", "free", "short"),
    [
        (100 * GB, 2 * GB, False),
        (100 * GB, GB, False),
        (100 * GB, GB - 4096, True),
        (GB, GB // 2, False),
        (GB, GB // 2 - 4096, True),
    ],
)
def test_space_is_short_below_a_gigabyte_and_below_half(
    disk: SimpleNamespace, total: int, free: int, short: bool
) -> None:
    disk.total, disk.free = total, free
    assert is_short("/") is short


def has_holes(path: Path) -> bool:
    """Whether this file system can have them, asked without what is tested here."""
    path.write_bytes(b"x" * 8192)
    punch_hole_and_keep_size = 0x02 | 0x01
    with path.open("r+b") as file:
        words = (ctypes.c_int(file.fileno()), ctypes.c_int(punch_hole_and_keep_size), ctypes.c_int64(0))
        return int(ctypes.CDLL(None).fallocate(*words, ctypes.c_int64(4096))) == 0


def test_what_is_given_back_reads_as_zeros_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 20_000)
    with path.open("r+b") as file:
        before = stored_bytes(file.fileno())
        assert before >= 20_000
        assert punch(file.fileno(), 4095)
        assert punch(file.fileno(), 0)
        assert stored_bytes(file.fileno()) == before, "less than a block is nothing to give back"
        if not has_holes(tmp_path / "other"):
            pytest.skip("this file system has no holes")
        assert punch(file.fileno(), 10_000)
        assert stored_bytes(file.fileno()) == before - 8192
    assert path.read_bytes() == bytes(8192) + b"x" * (20_000 - 8192)


def test_what_cannot_be_given_back_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 20_000)
    with path.open("rb") as file:
        assert not punch(file.fileno(), 10_000), "it is open for reading only"
