"""What a worker believes of the file in which a task has left its error: the task may have written anything there."""

import os
from pathlib import Path

import pytest

from iris.worker.reports.result_file import remove
from iris.worker.reports.task_file import EXCEPTION_BYTES, CallableError, read_error_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "error"


def read(file: Path, content: bytes) -> CallableError:
    file.write_bytes(content)
    return read_error_file(str(file))


def test_where_there_is_none_there_are_no_words(file: Path) -> None:
    assert read_error_file(str(file)) == CallableError("", b"")


def test_text_and_exception_are_told_apart_by_the_first_nul(file: Path) -> None:
    assert read(file, b" ValueError: bad \n") == CallableError("ValueError: bad", b"")
    assert read(file, b"text\0pickle\0of it") == CallableError("text", b"pickle\0of it")
    assert read(file, b"not \xff text").text == "not \ufffd text"


def test_a_long_text_is_cut_and_its_exception_kept(file: Path) -> None:
    """A character of the 8192 that are written may have four bytes."""
    assert read(file, b"x" * 8192) == CallableError("x" * 8192)
    assert read(file, b"x" * 8193 + b"\0pickle") == CallableError("x" * 8192, b"pickle")
    whole = bytes([1]) * EXCEPTION_BYTES
    assert read(file, b"x" * 4 * 8192 + b"\0" + whole) == CallableError("x" * 8192, whole)
    assert read(file, b"x" * 200_000) == CallableError("x" * 8192)


@pytest.mark.parametrize("too_many", [1, 2, 100_000])
def test_an_exception_that_is_too_large_is_none_and_not_a_part_of_one(file: Path, too_many: int) -> None:
    assert read(file, b"text\0" + bytes([1]) * (EXCEPTION_BYTES + too_many)) == CallableError("text", b"")


def test_a_link_a_pipe_and_anothers_file_are_not_read(file: Path) -> None:
    """The worker, which may be root, would tell the task what it cannot read itself."""
    (file.parent / "credential").write_text("secret")
    file.symlink_to(file.parent / "credential")
    assert read_error_file(str(file)) == CallableError("", b"")
    file.unlink()
    os.mkfifo(file)
    assert read_error_file(str(file)) == CallableError("", b"")
    file.unlink()
    os.link(file.parent / "credential", file)
    assert read_error_file(str(file), owner=os.getuid() + 1) == CallableError("", b"")
    file.unlink()
    file.mkdir()
    assert read_error_file(str(file)) == CallableError("", b"")
    remove(str(file))
    assert not file.exists()
