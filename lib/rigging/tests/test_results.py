"""Return values on their way: small, large, and those that cannot be had."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigging.results import ResultUnavailable, is_stored, pack_problem, pack_result, remove_stored_file, unpack_result

PYTHON = b"%d.%d" % sys.version_info[:2]


class Refuses:
    """A value that is not pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("stays\nhere")


class NotMadeAgain:
    """A value that is pickled and not made again."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return int, ("no number",)


def stored(path: Path, monkeypatch: pytest.MonkeyPatch, value: Any = b"x" * 1000) -> tuple[bytes, Path]:
    """A packed value in a file, and the file."""
    monkeypatch.setenv("MARIN_PREFIX", str(path))
    packed = pack_result(value, inline_bytes=100)
    (file,) = [found for found in path.rglob("*.pickle") if found.is_file()]
    return packed, file


@pytest.mark.parametrize("value", [None, 0, b"", b"\n! ", {"a": [1, (2,)]}, "stored at"])
def test_a_value_comes_back(value: Any) -> None:
    packed = pack_result(value)
    assert unpack_result(packed, "job a") == value
    assert not is_stored(packed)


def test_what_cannot_be_sent_is_told_with_its_reason() -> None:
    for packed, reason in (
        (pack_result(Refuses()), "job a has no result: a value of type Refuses .*stays here"),
        (pack_result(NotMadeAgain()), "result of job a cannot be unpickled here: ValueError.*no number"),
        (pack_result(os.urandom(3 << 20), largest_bytes=1 << 20), "more than 1 MiB; write it to a file and return its"),
    ):
        with pytest.raises(ResultUnavailable, match=reason):
            unpack_result(packed, "job a")
    assert pack_problem("no\n room ") == b"! no room\n", "a reason is one line"


@pytest.mark.parametrize("packed", [b"", b"2.7\nx", b"no line", PYTHON + b"\nno pickle"])
def test_other_bytes_are_no_value(packed: bytes) -> None:
    with pytest.raises(ResultUnavailable, match="job a"):
        unpack_result(packed, "job a")


def test_a_large_value_is_in_the_temporary_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, file = stored(tmp_path, monkeypatch)
    assert is_stored(packed)
    assert len(packed) < 1000
    assert "/tmp/job-results/" in str(file)
    assert unpack_result(packed, "job a") == b"x" * 1000
    remove_stored_file(packed)
    assert not file.exists()
    with pytest.raises(ResultUnavailable, match=r"cannot be read from .*kept there for 7 days"):
        unpack_result(packed, "job a")


def test_a_stored_value_that_was_exchanged_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write there could otherwise run code here."""
    packed, file = stored(tmp_path, monkeypatch)
    file.write_bytes(b"cos\nabort\n(tR.")
    with pytest.raises(ResultUnavailable, match="differs from the file that its job wrote to"):
        unpack_result(packed, "job a")


def test_storage_that_fails_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").write_text("a file where the folder would be")
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path))
    with pytest.raises(ResultUnavailable, match="cannot be sent"):
        unpack_result(pack_result(b"x" * 1000, inline_bytes=100), "job a")
