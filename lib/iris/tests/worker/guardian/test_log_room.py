"""When a disk counts as nearly full, and what is given back of a log."""

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from iris.worker.output.log_room import is_nearly_full, is_short, punch, stored_bytes

MB, GB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("total", "free", "is_full", "short"),
    [
        (100 * GB, 2 * GB, False, False),
        (100 * GB, GB, False, False),
        (100 * GB, GB - 4096, False, True),
        (100 * GB, 16 * MB, False, True),
        (100 * GB, 16 * MB - 4096, True, True),
        (100 * MB, 6 * MB, False, True),
        (100 * MB, 4 * MB, True, True),
        (20 * MB, 2 * MB, False, True),
        (20 * MB, 0, True, True),
        (GB, GB // 2, False, False),
        (GB, GB // 2 - 4096, False, True),
    ],
)
def test_when_room_is_short(monkeypatch: pytest.MonkeyPatch, total: int, free: int, is_full: bool, short: bool) -> None:
    sizes = SimpleNamespace(f_frsize=4096, f_blocks=total // 4096, f_bavail=free // 4096)
    monkeypatch.setattr(os, "fstatvfs", lambda _: sizes)
    monkeypatch.setattr(os, "statvfs", lambda _: sizes)
    assert (is_nearly_full(0), is_short("/")) == (is_full, short)


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
    with path.open("rb") as file:
        assert not punch(file.fileno(), 10_000), "it is open for reading only"
