import fcntl
import os
import shutil
import stat
from pathlib import Path

import pytest

from rigging.distributed_lock import Lease, LeaseLock, LeaseLostError, create_lock
from rigging.errors import Unavailable
from rigging.lease.local import LocalLeaseStore
from support.rigging.contention import taken


def test_a_stopped_process_inside_the_kernel_lock_is_reported(tmp_path: Path) -> None:
    lock = LeaseLock(LocalLeaseStore(str(tmp_path / "x.lock"), busy_seconds=0.01))
    with open(tmp_path / "x.lock.fence", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match=r"x\.lock\.fence has been locked"):
            lock.try_acquire()
    assert lock.try_acquire()


def test_looking_makes_no_files_and_what_a_crash_left_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    lock = create_lock(str(folder / "x.lock"))
    assert not lock.has_active_holder()
    assert not lock.release()
    with pytest.raises(LeaseLostError):
        lock.refresh()
    assert list(tmp_path.iterdir()) == []
    assert lock.try_acquire(), "missing directories are made"
    assert lock.release()
    (folder / ".marin-tmp-x.lock").write_text("half a lock file of a killed process, longer than the next one " * 9)
    assert lock.try_acquire()
    assert lock.has_active_holder()
    assert sorted(path.name for path in folder.iterdir()) == ["x.lock", "x.lock.fence"]
    (folder / "plain").write_bytes(b"")
    assert len({stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}) == 1, "shared as the umask says"


def test_below_a_file_there_is_no_lease_and_none_can_be_taken(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lock = create_lock(str(tmp_path / "file" / "x.lock"))
    assert not lock.has_active_holder()
    assert not lock.release()
    with pytest.raises(NotADirectoryError):
        lock.try_acquire()


def test_an_error_under_the_kernel_lock_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int, _operation: int) -> None:
        raise OSError(5, "Input/output error")

    lock = create_lock(str(tmp_path / "x.lock"))
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", fail)
        with pytest.raises(OSError, match="Input/output"):
            lock.try_acquire()
    assert len(os.listdir("/proc/self/fd")) == before
    assert lock.try_acquire()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("taken", [False, True])
def test_a_directory_made_again_has_its_own_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    """A lock of a file that is gone excludes no one: who waited for it must look again."""
    directory = tmp_path / "step"
    late, early = (create_lock(str(directory / "x.lock")) for _ in range(2))
    directory.mkdir()
    flock = fcntl.flock
    removed = False

    def remove_before_locking(descriptor: int, operation: int) -> None:
        nonlocal removed
        if not removed:
            removed = True
            shutil.rmtree(directory)
            assert not taken or early.try_acquire()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_before_locking)
    assert late.try_acquire() is not taken
    holder = early if taken else late
    holder.refresh()
    assert holder.fencing_token == 1


def test_what_was_read_counts_until_it_is_changed_here(tmp_path: Path) -> None:
    store = LocalLeaseStore(str(tmp_path / "x.lock"))
    with store.exclusive(create=True):
        claim = store.claim(Lease("a", 1.0), None, same_holder=False)
        read = store.read()
        assert read == claim.stored
        assert store.renew(Lease("a", 2.0), read) is not None
        assert store.renew(Lease("a", 3.0), read) is None
        assert not store.delete(read)
        renewed = store.read()
        assert store.delete(renewed)
        assert not store.delete(renewed)
        assert store.renew(Lease("a", 3.0), renewed) is None
    assert not (tmp_path / "x.lock").exists()


def test_on_a_full_disk_a_lease_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty lock file in its place would free the lease under its holder."""
    lock = taken(create_lock(tmp_path / "x.lock"))
    before = (tmp_path / "x.lock").read_bytes()

    def full(_descriptor: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: .*/x\.lock"):
        lock.refresh()
    monkeypatch.undo()
    assert (tmp_path / "x.lock").read_bytes() == before
    assert not list(tmp_path.glob(".marin-tmp-*"))
    lock.refresh()


def test_only_a_directory_made_in_this_turn_counts_as_new(tmp_path: Path) -> None:
    path = tmp_path / "out" / "x.lock"
    store = LocalLeaseStore(str(path), is_likely_new=True)
    with store.exclusive(create=True):
        assert store.is_new
        assert store.read() is None
        assert store.claim(Lease("one", 1.0), None, same_holder=False) is not None
        assert not store.is_new, "there is a lock file now"
    with store.exclusive(create=True):
        assert not store.is_new
        found = store.read()
        assert Lease.from_bytes(found.content) == Lease("one", 1.0)
    other = LocalLeaseStore(str(path), is_likely_new=True)
    with other.exclusive(create=True):
        assert not other.is_new, "it was there"
        assert other.read() == found


def test_a_lease_taken_just_after_the_mkdir_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "out" / "x.lock")
    store, other = LocalLeaseStore(path), LeaseLock(LocalLeaseStore(path), "other")
    mkdir = os.mkdir

    def made_and_overtaken(directory: str) -> None:
        mkdir(directory)
        monkeypatch.undo()
        assert other.try_acquire()

    monkeypatch.setattr(os, "mkdir", made_and_overtaken)
    with store.exclusive(create=True):
        assert not store.is_new
        assert store.read() is not None
        assert store.read_fence() == 1
