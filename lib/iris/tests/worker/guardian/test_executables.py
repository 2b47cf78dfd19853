"""The file that a command names, and why it cannot be started."""

import errno
import os
from pathlib import Path

import pytest

from iris.worker.guardian.executables import find_executable, start_error
from iris.worker.processes import NOT_EXECUTABLE, NOT_FOUND, ProcessSpec, StartFailed


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A workspace and two directories of PATH, with a program of the same name in each."""
    for name in ("work", "first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("#!/bin/sh\n")
        (tmp_path / name / "tool").chmod(0o755)
    (tmp_path / "work/data").write_text("")
    return tmp_path


def path_of(places: Path, *names: str) -> str:
    return ":".join(str(places / name) for name in names)


def test_a_name_is_looked_for_in_the_tasks_path_and_a_path_in_its_directory(places: Path) -> None:
    work = str(places / "work")
    assert find_executable("tool", path_of(places, "first", "second"), work) == str(places / "first/tool")
    assert find_executable("tool", path_of(places, "none", "second"), work) == str(places / "second/tool")
    assert find_executable("./tool", path_of(places, "first"), work) == f"{work}/./tool"
    assert find_executable(str(places / "second/tool"), "", work) == str(places / "second/tool")


@pytest.mark.parametrize(
    ("command", "words", "code"),
    [
        ("", r"the command is empty: argv\[0\] must name a program", NOT_EXECUTABLE),
        ("./none", r"command './none' not found: .*/work/\./none does not exist", NOT_FOUND),
        ("./data", r"command './data' cannot be started: .*/work/\./data is not an executable file", NOT_EXECUTABLE),
        ("../work", r"cannot be started: .*/work/\.\./work is not an executable file", NOT_EXECUTABLE),
        ("none", r"command 'none' not found; looked in PATH=/a:/b$", NOT_FOUND),
    ],
)
def test_what_cannot_be_found_is_named_with_the_place(places: Path, command: str, words: str, code: int) -> None:
    with pytest.raises(StartFailed, match=words) as failed:
        find_executable(command, "/a:/b:/a", str(places / "work"))
    assert failed.value.exit_code == code, "a shell's"


def test_the_kernels_reason_is_told_in_words(places: Path) -> None:
    spec = ProcessSpec("/u/a/0:0", ("tool",), {}, str(places / "work"))
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    assert start_error("/bin/tool", spec, missing) == (
        "command 'tool' cannot be started: /bin/tool names an interpreter that does not exist"
    )
    gone = ProcessSpec("/u/a/0:0", ("tool",), {}, str(places / "gone"))
    assert start_error("/bin/tool", gone, missing) == (
        f"command 'tool' cannot be started: its directory {places}/gone does not exist"
    )
    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert start_error("/bin/tool", spec, denied) == "command 'tool' cannot be started: /bin/tool: Permission denied"
