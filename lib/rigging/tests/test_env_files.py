"""Files of variables: what they may have, and that no value is ever told."""

import os
import threading
from pathlib import Path

import pytest

from rigging.project.env_files import BadEnvFile, read_env_files, variables_in_force

CONTENT = """\
# of the team
export PLAIN=a=b  # a comment
EMPTY=
SPACED = with two words
HASH=#1
SINGLE='as it is: \\n $HOME # no comment'
DOUBLE="two\\nlines and \\"quotes\\""
MULTI="first
second"
LITERAL=${PLAIN}/x
PLAIN=again
"""


def test_every_kind_of_line(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("\ufeff" + CONTENT)
    assert read_env_files([file]) == {
        "PLAIN": "again",
        "EMPTY": "",
        "SPACED": "with two words",
        "HASH": "#1",
        "SINGLE": "as it is: \\n $HOME # no comment",
        "DOUBLE": 'two\nlines and "quotes"',
        "MULTI": "first\nsecond",
        "LITERAL": "${PLAIN}/x",
    }


def test_a_named_pipe_that_nobody_writes_into_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadEnvFile, match=r"pipe: it is a named pipe without a writer$"):
        read_env_files([tmp_path / "pipe"], writer_seconds=0.01)
    # One whose writer takes its time, and the end of an empty one.
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    threading.Timer(0.1, lambda: (os.write(writer, b"A=1\n"), os.close(writer))).start()
    assert read_env_files([tmp_path / "pipe"], writer_seconds=0.01) == {"A": "1"}
    read_end, write_end = os.pipe()
    os.close(write_end)
    assert read_env_files([f"/dev/fd/{read_end}"], writer_seconds=0.01) == {}
    os.close(read_end)
    # The later file wins.
    (tmp_path / "a").write_text("A=2\nB=1\r\nC=1")
    (tmp_path / "b").write_text("B=2\n")
    assert read_env_files([tmp_path / "a", tmp_path / "b"]) == {"A": "2", "B": "2", "C": "1"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"A=1\n\n\nhunter2\n", r"line 4: there is no '='; a line is NAME=value"),
        (b"A=1\n\n'B=hunter2\n", r"line 3: a line is NAME=value, NAME='value'"),
        (b'A=1\nB="hunter2\n', r"line 2: a line is"),
        (b'A="x" hunter2\n', r"line 1: a line is"),
        (b"A-B=hunter2\n", r"line 1: the text before '=' is not a valid name"),
        (b"1A=hunter2\n", r"line 1: the text before"),
        (b"# x\r\n\r\nA=hunter2\0\r\n", r"line 3: the value of A has a NUL"),
        (b"A=1\nB=hunter2\xff\n", r"line 2: it is not UTF-8"),
        (b"A=hunter2" + b" " * (1 << 20), r"more than 1048576 bytes"),
    ],
)
def test_a_file_with_anything_else_is_refused_without_its_values(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / ".env"
    file.write_bytes(content)
    with pytest.raises(BadEnvFile, match=rf"^env file {file}(, |: it has ){told}") as caught:
        read_env_files([file])
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_files_that_cannot_be_trusted_or_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    with pytest.raises(BadEnvFile, match=rf"^env file {file}: No such file"):
        read_env_files([file])
    with pytest.raises(BadEnvFile, match=rf"^env file {tmp_path}: Is a directory"):
        read_env_files([tmp_path])
    with pytest.raises(BadEnvFile, match=r"^env file /dev/null: it is neither a file nor a pipe$"):
        read_env_files(["/dev/null"])
    file.write_text("A=1\n")
    file.chmod(0o646)
    with pytest.raises(BadEnvFile, match=rf"^env file {file}: it has mode 646, so everybody can write it: chmod o-w"):
        read_env_files([file])
    file.chmod(0o664)
    assert read_env_files([file]) == {"A": "1"}


def test_variables_are_in_force_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENV_FILES_A", "before")
    monkeypatch.setenv("ENV_FILES_C", "before")
    monkeypatch.delenv("ENV_FILES_B", raising=False)
    with variables_in_force({"ENV_FILES_A": "1", "ENV_FILES_B": "2", "ENV_FILES_C": "3"}):
        assert (os.environ["ENV_FILES_A"], os.environ["ENV_FILES_B"]) == ("1", "2")
        os.environ["ENV_FILES_C"] = "set by the program"
    assert os.environ["ENV_FILES_A"] == "before"
    assert "ENV_FILES_B" not in os.environ
    assert os.environ["ENV_FILES_C"] == "set by the program"
