import hashlib
import os
import time
from pathlib import Path

import pytest

from iris.controller.storage.blobs import BlobStore, Upload, check_digest
from rigging.errors import BudgetExceeded, InvalidRequest, NotFound

MIB = 2**20


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def files(store: BlobStore, tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file())


@pytest.mark.parametrize("wrong", ["", "ab", "AB" * 32, "ab" * 33, "../" + "ab" * 30, "zz" * 32, "ab" * 32 + "\n"])
def test_a_digest_is_64_lowercase_hex_digits(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a blob digest: expected 64 lowercase hex digits"):
        check_digest(wrong)
    assert check_digest("0a" * 32) == "0a" * 32


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB])
def test_a_blob_is_read_in_pieces_of_which_the_last_is_marked(store: BlobStore, size: int) -> None:
    data = os.urandom(size)
    digest = store.put(data)
    assert digest == digest_of(data)
    pieces = list(store.read(digest))
    assert b"".join(piece for _, piece, _ in pieces) == data
    assert [offset for offset, _, _ in pieces] == list(range(0, max(size, 1), MIB))
    assert [last for _, _, last in pieces] == [False] * (len(pieces) - 1) + [True]
    assert store.size(digest) == size
    assert store.path(digest).parent.name == digest[:2]


def test_what_is_not_here_is_said(store: BlobStore) -> None:
    digest = digest_of(b"x")
    assert not store.has(digest)
    assert not store.verify(digest)
    assert not store.is_verified(digest)
    with pytest.raises(NotFound, match=r"has no blob .* any more: submit again"):
        next(store.read(digest))
    with pytest.raises(NotFound, match="has no blob"):
        store.size(digest)
    assert list(store.unused_since(time.time())) == []
    assert store.removals == 0


def test_damage_is_found_removed_and_counted_once(store: BlobStore) -> None:
    digest = store.put(b"whole")
    assert store.is_verified(digest)
    store.path(digest).write_bytes(b"rot..")
    assert store.verify(digest), "it was read by this process before"
    again = BlobStore(store.path(digest).parents[1])
    assert again.has(digest)
    assert not again.is_verified(digest)
    assert not again.verify(digest)
    assert not again.path(digest).exists()
    assert again.removals == 1
    assert not again.has(digest)
    assert again.removals == 1
    assert again.put(b"whole") == digest
    assert again.is_verified(digest)
    store.path(digest).write_bytes(b"")
    with pytest.raises(NotFound, match="was damaged on the controller's disk"):
        list(store.read(digest))
    assert store.removals == 1


def test_of_several_each_is_told_once_in_order(store: BlobStore) -> None:
    good, bad, absent = store.put(b"good"), store.put(b"bad"), digest_of(b"absent")
    fresh = BlobStore(store.path(good).parents[1])
    fresh.path(bad).write_bytes(b"?")
    asked = [absent, good, bad, absent]
    assert fresh.missing(asked) == [absent]
    assert fresh.unsound(asked) == fresh.missing(asked) == [absent, bad]


def test_a_blob_that_is_asked_for_stays_and_is_marked_seldom(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store.put(b"x")
    path = store.path(digest)
    now = time.time()
    os.utime(path, (1000, 1000))
    assert list(store.unused_since(1001)) == [digest]
    assert list(store.unused_since(1000)) == []
    assert store.has(digest)
    assert path.stat().st_mtime == 1000, "it was marked a moment ago"
    monkeypatch.setattr(time, "time", lambda: now + 601)
    assert store.has(digest)
    assert path.stat().st_mtime == pytest.approx(now + 601)
    assert not store.remove_unused(digest, now + 600)
    assert store.has(digest)
    assert store.remove_unused(digest, now + 602)
    assert not path.exists()
    assert store.removals == 1
    assert store.remove_unused(digest, now), "gone is gone"
    assert not store.has(digest)


def test_other_files_are_none(store: BlobStore, tmp_path: Path) -> None:
    digest = store.put(b"x")
    root = tmp_path / "blobs"
    (root / "upload.abc").write_bytes(b"half")
    (root / digest[:2] / "note.txt").write_bytes(b"")
    assert list(store.unused_since(time.time() + 10)) == [digest]
    store.remove_leftovers()
    assert files(store, tmp_path) == sorted([digest, "note.txt"])


def test_an_upload_that_ends_early_leaves_nothing(store: BlobStore, tmp_path: Path) -> None:
    whole, half = digest_of(b"whole"), digest_of(b"half")
    with Upload(store) as upload:
        upload.add(half, 0, b"ha", last=False)
        upload.add(whole, 0, b"wh", last=False)
        upload.add(whole, 2, b"ole", last=True)
        assert upload.unfinished == [half]
        assert upload.stored == 1
    assert files(store, tmp_path) == [whole]
    assert store.is_verified(whole)


def test_chunks_come_in_order_and_are_what_they_say(store: BlobStore, tmp_path: Path) -> None:
    digest = digest_of(b"abc")
    with Upload(store) as upload:
        with pytest.raises(InvalidRequest, match="the first chunk has offset 1, expected 0"):
            upload.add(digest, 1, b"bc", last=True)
        upload.add(digest, 0, b"a", last=False)
        with pytest.raises(InvalidRequest, match="chunk at offset 2, expected 1"):
            upload.add(digest, 2, b"c", last=True)
        with pytest.raises(InvalidRequest, match=f"the 2 bytes sent have the digest {digest_of(b'ax')}"):
            upload.add(digest, 1, b"x", last=True)
        assert upload.unfinished == []
    assert files(store, tmp_path) == []
    assert upload.stored == 0


def test_without_room_nothing_is_taken(tmp_path: Path) -> None:
    asked: list[int] = []

    def room(count: int) -> bool:
        asked.append(count)
        return count <= 3

    store = BlobStore(tmp_path / "blobs", room)
    assert store.has_room(3)
    store.put(b"abc")
    with pytest.raises(BudgetExceeded, match="no room for more files on the controller's disk"):
        store.put(b"abcd")
    assert asked == [3, 3, 4]
    assert files(store, tmp_path) == [digest_of(b"abc")]
    assert BlobStore(tmp_path).has_room(0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_no_defect(store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> tuple[int, Path]:
        (tmp_path / "blobs").mkdir()
        (tmp_path / "blobs/upload.x").touch()
        return os.open("/dev/full", os.O_WRONLY), tmp_path / "blobs/upload.x"

    monkeypatch.setattr(store, "temporary_file", full)
    with pytest.raises(BudgetExceeded):
        store.put(b"x" * MIB)
    assert files(store, tmp_path) == []
