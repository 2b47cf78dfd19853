"""A local copy on its way in: claimed by one copier, gone on with by the next, published once."""

import ctypes
import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rigging.clock import SYSTEM_CLOCK, Clock
from rigging.copying.local.part import Part, claim_part, create_part, part_path
from rigging.filesystem.atomic import TEMPORARY_PREFIX
from support.rigging.clock import FakeClock


def claim(final: str, version: str, patience: float, clock: Clock = SYSTEM_CLOCK) -> Part:
    part = claim_part(final, version, patience, clock)
    assert part is not None
    return part


def test_a_part_is_claimed_by_one_and_goes_on_from_what_is_there(tmp_path: Path):
    final = str(tmp_path / "x")
    first = claim(final, "v1", 60)
    first.append(b"123")
    claimed: list[Any] = []
    waiting = threading.Thread(target=lambda: claimed.append(claim_part(final, "v1", 60)))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive(), "the second must wait while the first is at work"
    first.close()
    waiting.join(5)
    second = claimed[0]
    assert second.size == 3
    second.append(b"45")
    assert second.publish(final)
    second.close()
    assert Path(final).read_bytes() == b"12345"
    assert os.listdir(tmp_path) == ["x"]
    assert claim_part(final, "v1", 60) is None


def test_a_copier_that_stands_still_is_passed_by(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    final = str(tmp_path / "x")
    still = claim(final, "v", 60)
    before = len(os.listdir("/proc/self/fd"))
    other = claim_part(final, "v", 0.02)  # looks several times before it passes the first by
    assert other is not None
    assert len(os.listdir("/proc/self/fd")) == before + 1, "waiting costs no descriptors"
    assert other.path != still.path
    assert "no progress of its copier" in caplog.text
    other.append(b"x")
    assert other.publish(final)
    assert not still.publish(final), "what is published is not replaced"
    other.close()
    still.close()
    assert os.listdir(tmp_path) == ["x"]


def test_a_part_that_was_published_is_never_written_again(tmp_path: Path):
    final = tmp_path / "x"
    final.write_bytes(b"published")
    part = part_path(str(final), "v")
    os.link(final, part)
    moved = tmp_path / "archive"
    os.rename(final, moved)
    claimed = claim(str(final), "v", 60)
    assert claimed.size == 0
    claimed.append(b"new")
    claimed.close()
    assert moved.read_bytes() == b"published"


def test_each_version_of_each_file_has_a_part_of_its_own_beside_it() -> None:
    """Under another's name its bytes would be appended to, and published as, another file or version."""
    own = part_path("/data/a", "v1")
    assert own == part_path("/data/a", "v1"), "the next copier must find it"
    others = {part_path("/data/a", "v2"), part_path("/data/b", "v1"), part_path("/data/av", "1"), part_path("/a", "v1")}
    assert own not in others
    assert len(others) == 4
    assert os.path.dirname(own) == "/data", "a rename is atomic within one filesystem only"
    assert os.path.basename(own).startswith(TEMPORARY_PREFIX), "it must not be listed"


def test_the_directory_of_a_part_is_made_and_what_is_there_is_looked_at_closer(tmp_path: Path) -> None:
    final = str(tmp_path / "a/b/x")
    assert create_part(final, "v") is None, "claim_part has to look closer"
    part = claim(final, "v", 60)
    assert create_part(final, "v") is None
    assert part.publish(final)
    part.close()
    assert create_part(final, "v") is None
    assert os.listdir(tmp_path / "a/b") == ["x"]
    other = create_part(str(tmp_path / "a/b/y"), "v")
    assert other is not None
    other.discard()
    other.close()
    assert os.listdir(tmp_path / "a/b") == ["x"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_part_that_vanishes_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool) -> None:
    """Its copier published it between our opening it and our lock: what we wrote would never have a name."""
    final = str(tmp_path / "x")
    lock, path = fcntl.flock, part_path(final, "v")
    vanished: list[int] = []

    def flock(descriptor: int, operation: int) -> None:
        if not vanished:
            vanished.append(descriptor)
            os.unlink(path)
            if replaced:
                Path(path).touch()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    part = claim(final, "v", 60)
    part.append(b"1")
    assert part.publish(final)
    part.close()
    assert Path(final).read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["x"]


def renameat2_with(number: int) -> Any:
    def rename(*_: Any) -> int:
        ctypes.set_errno(number)
        return -1

    return lambda: rename


@pytest.mark.parametrize("no_links", [False, True])
@pytest.mark.parametrize("rename", [lambda: None, renameat2_with(errno.EINVAL)], ids=["not there", "not offered"])
def test_filesystems_without_the_kernels_rename_publish_and_replace_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rename: Any, no_links: bool
) -> None:
    def link(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    if no_links:
        monkeypatch.setattr(os, "link", link)
    published, late = (claim(str(tmp_path / name), "v", 60) for name in ("x", "y"))
    published.kernel_rename = late.kernel_rename = rename
    (tmp_path / "y").write_bytes(b"mine")
    published.append(b"1")
    assert published.publish(str(tmp_path / "x"))
    assert not late.publish(str(tmp_path / "y"))
    published.close()
    late.close()
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]
    assert (tmp_path / "x").read_bytes() == b"1"
    assert (tmp_path / "y").read_bytes() == b"mine"


@pytest.mark.parametrize("by_link", [False, True])
def test_a_part_that_is_not_published_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_link: bool) -> None:
    def link(*_: Any) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "link", link)
    part = claim(str(tmp_path / "x"), "v", 60)
    part.kernel_rename = renameat2_with(errno.ENOSYS if by_link else errno.EDQUOT)
    with pytest.raises(OSError, match="quota"):
        part.publish(str(tmp_path / "x"))
    part.close()
    assert not (tmp_path / "x").exists()


def test_a_child_that_was_forked_meanwhile_does_not_keep_the_claim(tmp_path: Path) -> None:
    """It has the descriptors of its parent, and may live on for hours."""
    final = str(tmp_path / "x")
    first = claim(final, "v", 60)
    path, of_child = first.path, os.dup(first.descriptor)  # as a fork has it: one open file, one lock
    first.append(b"12")
    first.close()
    first.close()
    second = claim(final, "v", 60)
    assert (second.path, second.size) == (path, 2)
    second.restart()
    second.append(b"3")
    assert second.publish(final)
    second.close()
    os.close(of_child)
    assert Path(final).read_bytes() == b"3"


def test_who_is_late_waits_as_long_as_the_copy_grows(tmp_path: Path) -> None:
    final = str(tmp_path / "x")
    first = claim(final, "v", 60)

    class GrowingCopy(FakeClock):
        def sleep(self, seconds: float) -> None:
            self.sleeps.append(seconds)
            self.advance(9)
            if len(self.sleeps) < 9:
                first.append(b"1")

    clock = GrowingCopy()
    other = claim(final, "v", 10, clock)
    assert len(clock.sleeps) == 10, "nine seconds apart, and the copy grew but for the last two looks"
    assert max(clock.sleeps) <= 0.02
    other.close()
    first.close()
