"""The files of a local cluster: private, whole, and locked by whoever lives."""

import dataclasses
import errno
import os
import threading
from pathlib import Path

import pytest

from iris.local.state import (
    ClusterRecord,
    LocalPaths,
    held_lock,
    is_locked,
    local_paths,
    lock_holder,
    read_record,
    wait_unlocked,
    write_record,
)
from rigging.errors import Denied, InvalidRequest, Unavailable

RECORD = ClusterRecord(7, "127.0.0.1:1", "u:ann:secret", "w:local:secret", 1, "0.1.0", 1, 900.0, True)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"IRIS_STATE_DIR": "/a/b", "XDG_STATE_HOME": "/x"}, Path("/a/b")),
        ({"XDG_STATE_HOME": "/x"}, Path("/x/iris/local")),
        ({"XDG_STATE_HOME": "relative"}, Path.home() / ".local/state/iris/local"),
        ({}, Path.home() / ".local/state/iris/local"),
    ],
)
def test_where_the_state_is(environ, expected):
    assert local_paths(environ).root == expected


def test_the_record_is_private_and_comes_back_equal(paths):
    paths.make()
    write_record(paths, RECORD)
    write_record(paths, dataclasses.replace(RECORD, ready=False))
    assert read_record(paths) == dataclasses.replace(RECORD, ready=False)
    assert paths.record.stat().st_mode & 0o777 == 0o600
    assert paths.root.stat().st_mode & 0o777 == 0o700
    assert os.listdir(paths.root) == ["cluster.json"]
    assert "secret" not in repr(RECORD)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 7}', '{"unknown": 1}'])
def test_a_damaged_record_is_as_good_as_none(paths, text):
    paths.make()
    paths.record.touch(mode=0o600)
    paths.record.write_text(text)
    assert read_record(paths) is None


def test_a_record_that_others_could_have_written_is_refused(paths):
    paths.make()
    write_record(paths, RECORD)
    paths.record.chmod(0o622)
    with pytest.raises(Denied, match=r"cluster\.json has mode 622, so others can write it: .* set IRIS_STATE_DIR"):
        read_record(paths)
    paths.record.chmod(0o600)
    paths.root.chmod(0o777)  # where the socket is
    with pytest.raises(Denied, match=r"state directory .* mode 777, so others can write to it: .* set IRIS_STATE_DIR"):
        read_record(paths)


def test_a_directory_open_to_others_is_closed(paths):
    paths.root.mkdir(mode=0o755)
    paths.make()
    assert paths.root.stat().st_mode & 0o777 == 0o700


def test_a_directory_of_somebody_else_is_refused(paths, monkeypatch):
    paths.root.mkdir(mode=0o755)
    monkeypatch.setattr(os, "getuid", lambda: paths.root.stat().st_uid + 1)
    with pytest.raises(Denied, match=r"belongs to uid \d+; set IRIS_STATE_DIR"):
        paths.make()
    assert paths.root.stat().st_mode & 0o777 == 0o755, "it is not ours to change"


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match=r"file/state.*IRIS_STATE_DIR"):
        LocalPaths(tmp_path / "file" / "state").make()


def test_a_lock_names_its_holder_and_ends_with_it(paths):
    paths.make()
    lock = paths.controller_lock
    assert not is_locked(lock)
    with held_lock(lock, timeout=0):
        assert is_locked(lock)
        assert lock_holder(lock) == os.getpid()
        assert not wait_unlocked(lock, timeout=0.02)
        with pytest.raises(Unavailable, match=f"process {os.getpid()} holds"), held_lock(lock, timeout=0.02):
            pass
    assert lock_holder(lock) is None


def test_a_waiting_locker_gets_its_turn(paths):
    paths.make()
    first_in, done = threading.Event(), threading.Event()

    def hold() -> None:
        with held_lock(paths.start_lock, timeout=5):
            first_in.set()
            done.wait(5)

    holder = threading.Thread(target=hold)
    holder.start()
    assert first_in.wait(5)
    threading.Timer(0.05, done.set).start()
    with held_lock(paths.start_lock, timeout=5):
        assert done.is_set()
    holder.join()


def test_a_lock_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    place = tmp_path / "start.lock"
    with pytest.raises(Unavailable, match=f"cannot write {place}: No space left"), held_lock(place, timeout=1):
        pass
    monkeypatch.undo()
    assert not is_locked(place)


def test_looking_at_locks_leaves_nothing_open(paths):
    """A controller looks at them for weeks."""
    paths.make()
    before = len(os.listdir("/proc/self/fd"))
    with held_lock(paths.start_lock, timeout=1):
        assert lock_holder(paths.start_lock) == os.getpid()
    assert not is_locked(paths.start_lock)
    assert wait_unlocked(paths.start_lock, timeout=1)
    assert len(os.listdir("/proc/self/fd")) == before
