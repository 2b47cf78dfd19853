"""Private files: what others could have written is refused, and says what is wrong and what helps."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rigging.errors import Denied
from rigging.filesystem.private import check_own_folder, load_or_create, read_private, write_private

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can write files as another user")


def written(path: Path, mode: int = 0o600) -> Path:
    path.write_bytes(b"content")
    path.chmod(mode)
    return path


def as_nobody(command: str, folder: Path) -> None:
    """Run a command of the shell as another user, in a folder that everybody may write to."""
    subprocess.run(["sh", "-c", command], cwd=folder, user=NOBODY, group=NOBODY, extra_groups=[], check=True)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder as /tmp is: all may write to it, and it is reached by all."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    for above in folder.parents:
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    return folder


def test_a_private_file_is_read(tmp_path: Path) -> None:
    assert read_private(written(tmp_path / "key"), "the key") == b"content"
    assert read_private(written(tmp_path / "read-only", 0o400), "the key") == b"content"
    assert read_private(tmp_path / "none", "the key") is None


def test_a_file_for_others_is_refused(tmp_path: Path) -> None:
    for mode, what_others_can in ((0o640, "read"), (0o604, "read"), (0o620, "write"), (0o602, "write")):
        path = written(tmp_path / "key", mode)
        cure = "chmod 600 it if you trust what is in it, else remove it"
        wrong = f"the key {path} has mode {mode:o}, so others can {what_others_can} it: {cure}"
        with pytest.raises(Denied, match=f"^{re.escape(wrong)}$"):
            read_private(path, "the key")


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    written(tmp_path / "key")
    (tmp_path / "link").symlink_to("key")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo", 0o600)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "socket"))
    listener.close()
    kinds = {"link": "a symbolic link", "folder": "a directory", "fifo": "a FIFO", "socket": "a socket"}
    for name, kind in kinds.items():
        with pytest.raises(Denied, match=rf"the key .*/{name} is not a regular file but {kind}: remove it"):
            read_private(tmp_path / name, "the key")


@needs_root
@pytest.mark.parametrize("mode", ["600", "666"])
def test_another_users_file_is_refused(shared: Path, mode: str) -> None:
    as_nobody(f"printf planted > key && chmod {mode} key", shared)
    wrong = f"the key {shared / 'key'} belongs to uid {NOBODY}, not to you (uid {os.geteuid()}): remove it"
    with pytest.raises(Denied, match=re.escape(wrong)):
        read_private(shared / "key", "the key")
    with pytest.raises(Denied, match=re.escape(wrong)):
        load_or_create(shared / "key", lambda: b"new", "the key")
    assert (shared / "key").read_bytes() == b"planted"
    as_nobody(f"ln -s {written(shared / 'known')} link", shared)
    with pytest.raises(Denied, match="is not a regular file but a symbolic link"):
        read_private(shared / "link", "the key")


@needs_root
def test_to_one_who_cannot_open_it_the_file_is_another_users(shared: Path) -> None:
    written(shared / "key")
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            read_private(shared / "key", "the key")
        except Denied as denied:
            code = 0 if "belongs to uid 0, not to you (uid 65534)" in str(denied) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_is_made_once_and_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        assert load_or_create(tmp_path / "key", lambda: b"first", "the key") == b"first"
    finally:
        os.umask(old)
    assert load_or_create(tmp_path / "key", lambda: b"second", "the key") == b"first"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["key"]
    with pytest.raises(FileNotFoundError):
        load_or_create(tmp_path / "none/key", lambda: b"", "the key")


MAKE_ALL = """
import sys
from rigging.filesystem.private import load_or_create
directory, own = sys.argv[1:]
for name in "01234567":
    found = load_or_create(f"{directory}/{name}", lambda: own.encode() * 10_000, "the key")
    print(name, found == found[:1] * 10_000, found[:1])
"""


@pytest.mark.process
def test_of_processes_that_make_it_at_once_all_have_the_same(tmp_path: Path) -> None:
    # Programs of their own: forks of this process would have its threads' locks.
    programs = [
        subprocess.Popen([sys.executable, "-c", MAKE_ALL, tmp_path, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    found = {program.communicate(timeout=60)[0] for program in programs}
    assert [program.returncode for program in programs] == [0] * 4
    assert len(found) == 1
    assert re.fullmatch(r"(\d True b'\d'\n){8}", found.pop())
    assert sorted(os.listdir(tmp_path)) == sorted(map(str, range(8)))


def test_an_own_folder_is_one_that_others_cannot_write_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    check_own_folder(tmp_path, "the folder", "remove it")
    (tmp_path / "link").symlink_to(tmp_path)
    check_own_folder(tmp_path / "link", "the folder", "remove it")
    with pytest.raises(Denied, match=r"the folder .*/link is not a directory but a symbolic link: remove it"):
        check_own_folder(tmp_path / "link", "the folder", "remove it", follow_links=False)
    with pytest.raises(Denied, match="is not a directory but a file"):
        check_own_folder(written(tmp_path / "file"), "the folder", "remove it")
    for mode in (0o770, 0o777):
        tmp_path.chmod(mode)
        with pytest.raises(Denied, match=f"has mode {mode:o}, so others can write to it: take another"):
            check_own_folder(tmp_path, "the folder", "take another")


@needs_root
def test_another_users_folder_is_refused(shared: Path) -> None:
    as_nobody("mkdir -m 755 theirs", shared)
    with pytest.raises(Denied, match=f"belongs to uid {NOBODY}, not to you"):
        check_own_folder(shared / "theirs", "the folder", "remove it")


def test_a_replaced_file_is_private_and_a_failure_leaves_no_trace(tmp_path: Path) -> None:
    place = written(tmp_path / "key", 0o644)
    write_private(place, b"new", durable=True)
    assert read_private(place, "the key") == b"new"
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "folder", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "key"]
