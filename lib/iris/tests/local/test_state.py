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


def test_the_record_is_private_and_one_that_others_could_have_written_is_refused(paths):
    paths.make()
    write_record(paths, RECORD)
    write_record(paths, dataclasses.replace(RECORD, ready=False))
    assert read_record(paths) == dataclasses.replace(RECORD, ready=False)
    assert paths.record.stat().st_mode & 0o777 == 0o600
    assert paths.root.stat().st_mode & 0o777 == 0o700
    assert os.listdir(paths.root) == ["cluster.json"]
    assert "secret" not in repr(RECORD)
    for text in ("", "{", "[]", '{"pid": 7}', '{"unknown": 1}'):
        paths.record.write_text(text)
        assert read_record(paths) is None, "a damaged one is as good as none"
    paths.record.chmod(0o622)
    with pytest.raises(Denied, match=r"cluster\.json has mode 622, so others can write it: .* set IRIS_STATE_DIR"):
        read_record(paths)
    paths.record.chmod(0o600)
    paths.root.chmod(0o777)  # where the socket is
    with pytest.raises(Denied, match=r"state directory .* mode 777, so others can write to it: .* set IRIS_STATE_DIR"):
        read_record(paths)


def test_a_directory_open_to_others_is_closed_and_one_of_somebody_else_refused(paths, monkeypatch):
    paths.root.mkdir(mode=0o755)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: paths.root.stat().st_uid + 1)
        with pytest.raises(Denied, match=r"belongs to uid \d+; set IRIS_STATE_DIR"):
            paths.make()
    assert paths.root.stat().st_mode & 0o777 == 0o755, "it is not ours to change"
    paths.make()
    assert paths.root.stat().st_mode & 0o777 == 0o700
    (paths.root / "file").write_text("")
    with pytest.raises(InvalidRequest, match=r"file/state.*IRIS_STATE_DIR"):
        LocalPaths(paths.root / "file" / "state").make()


def test_a_lock_names_its_holder_and_ends_with_it_and_looking_at_it_leaves_nothing_open(paths):
    """A controller looks at them for weeks."""
    paths.make()
    lock, before = paths.controller_lock, len(os.listdir("/proc/self/fd"))
    assert not is_locked(lock)
    with held_lock(lock, timeout=0):
        assert is_locked(lock)
        assert lock_holder(lock) == os.getpid()
        assert not wait_unlocked(lock, timeout=0.02)
        with pytest.raises(Unavailable, match=f"process {os.getpid()} holds"), held_lock(lock, timeout=0.02):
            pass
    assert lock_holder(lock) is None
    assert wait_unlocked(lock, timeout=1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_waits_for_its_turn_and_one_that_cannot_be_written_is_named(paths, tmp_path, monkeypatch):
    paths.make()
    former = held_lock(paths.start_lock, timeout=5)
    former.__enter__()
    threading.Timer(0.05, former.__exit__, (None, None, None)).start()
    with held_lock(paths.start_lock, timeout=5):
        assert lock_holder(paths.start_lock) == os.getpid()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    place = tmp_path / "start.lock"
    with pytest.raises(Unavailable, match=f"cannot write {place}: No space left"), held_lock(place, timeout=1):
        pass
    monkeypatch.undo()
    assert not is_locked(place)
