"""The log store by itself: names of files, limits, what is kept in memory, and what goes."""

import logging
from pathlib import Path

import pytest

from iris.controller.logs.files import DROPPED, shed
from iris.controller.logs.store import LogStore
from iris.domain.ids import JobId
from iris.rpc.logformat import encode, lost_log
from iris.store.log_shelf import LogShelf
from rigging.errors import InvalidRequest

T = 1_790_000_000_000
KEY = ("/ann/a", 0, 0)
KIB = 1024


def line(number: int, size: int = 10, *, note: bool = False) -> bytes:
    return encode(False, T + number, b"%d" % (number % 10) * size, note=note)


def files(root: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in root.rglob("~*")}


def test_files_are_begun_when_one_is_full_and_dropped_from_the_middle(tmp_path: Path) -> None:
    store = LogStore(tmp_path, 256 * KIB)
    piece = line(1, 32 * KIB - 17)
    assert len(piece) == 32 * KIB
    for number in range(8):
        assert store.append(KEY, number * len(piece), piece) == (number + 1) * len(piece)
    whole = {"~0.0.log": 64 * KIB, **{f"~0.0.{64 * KIB * n}.log": 64 * KIB for n in (1, 2, 3)}}
    assert files(tmp_path) == whole
    store.append(KEY, 8 * len(piece), piece)
    del whole[f"~0.0.{64 * KIB}.log"]
    assert files(tmp_path) == {**whole, f"~0.0.{256 * KIB}.log": 32 * KIB}
    records = list(store.read(KEY, 0))
    assert [record.hole for record in records] == [0, 0, 64 * KIB, 0, 0, 0, 0, 0]
    assert records[2].data == lost_log(64 * KIB, DROPPED)
    assert records[2].at_ms == T + 1
    assert [record.hole for record in LogStore(tmp_path).tail(KEY, 6)] == [64 * KIB, 0, 0, 0, 0, 0]
    assert [record.hole for record in LogStore(tmp_path).tail(KEY, 5)] == [0] * 5
    assert [record.hole for record in store.read(KEY, 64 * KIB)] == [64 * KIB, 0, 0, 0, 0, 0]
    assert [record.end for record in store.read(KEY, 192 * KIB)] == [224 * KIB, 256 * KIB, 288 * KIB]


def test_bytes_that_came_before_are_skipped_and_a_gap_is_told(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    one, two = line(1), line(2)
    assert store.append(KEY, 5, one) == 0, "it begins too late"
    assert store.append(KEY, 0, one + two[:4]) == len(one) + 4
    assert store.append(KEY, len(one), two) == len(one) + len(two)
    assert store.append(KEY, 0, one) == len(one) + len(two)
    assert store.append(KEY, len(one) + len(two), b"") == len(one) + len(two)
    assert [record.data for record in store.read(KEY, 0)] == [b"1" * 10, b"2" * 10]
    assert store.complete_size(KEY) == store.size(KEY) == len(one) + len(two)


def test_a_cut_record_is_not_read_before_it_is_whole(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    one, two = line(1), line(2)
    store.append(KEY, 0, one + two[:-1])
    for reader in (store, LogStore(tmp_path)):
        assert reader.complete_size(KEY) == len(one)
        assert len(list(reader.read(KEY, 0))) == len(reader.tail(KEY, 5)) == 1
    store.append(KEY, len(one + two) - 1, two[-1:])
    assert store.complete_size(KEY) == len(one + two)
    assert [record.at_ms for record in store.read(KEY, len(one))] == [T + 2]


def test_a_jobs_logs_are_listed_in_order_and_go_together(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    for key in (("/ann/a", 1, 0), ("/ann/a", 0, 2), ("/ann/a", 0, 1), ("/ann/a/b", 0, 0), ("/ann/ab", 0, 0)):
        store.append(key, 0, line(1))
    (tmp_path / "ann/a/notes.txt").write_text("not ours")
    for found in (store, LogStore(tmp_path)):
        assert found.keys("/ann/a") == [("/ann/a", 0, 1), ("/ann/a", 0, 2), ("/ann/a", 1, 0)]
        assert found.attempts("/ann/x") == set()
        assert sorted(found.stored_jobs()) == ["/ann/a", "/ann/a/b", "/ann/ab"]
        assert sorted(found.stored_jobs("/ann/a")) == ["/ann/a", "/ann/a/b"]
    (tmp_path / "ann/a/notes.txt").unlink()
    store.remove_below("/ann/a", 2, 9)
    assert store.keys("/ann/a") == [("/ann/a", 0, 2)]
    assert store.size(("/ann/a", 0, 1)) == 0
    store.remove("/ann/a")
    assert LogStore(tmp_path).keys("/ann/a") == []
    assert (tmp_path / "ann/a/b").is_dir(), "its child has a log"
    store.remove("/ann/a/b")
    assert [path.name for path in (tmp_path / "ann").iterdir()] == ["ab"]
    store.remove("/ann/ab")
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.is_dir()


def test_an_exception_is_kept_and_goes_with_its_log(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    assert store.exception(KEY) == b""
    store.keep_exception(KEY, b"first")
    store.keep_exception(KEY, b"again")
    later = ("/ann/a", 0, 1)
    store.append(later, 0, line(1))
    store.keep_exception(later, b"later")
    store.append(later, len(line(1)), line(2))
    for reader in (store, LogStore(tmp_path)):
        assert [reader.exception(key) for key in (KEY, later)] == [b"again", b"later"]
        assert list(reader.read(KEY, 0)) == []
        assert len(list(reader.read(later, 0))) == 2
    LogStore(tmp_path).remove_below("/ann/a", 1, 9)
    assert sorted(files(tmp_path)) == ["~0.1.exception", "~0.1.log"]
    LogStore(tmp_path).remove("/ann/a")
    assert list(tmp_path.iterdir()) == []


def test_without_room_no_exception_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    LogStore(tmp_path, has_room=lambda count: False).keep_exception(KEY, b"x")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "ann").write_text("no directory")
    with caplog.at_level(logging.WARNING):
        LogStore(tmp_path).keep_exception(KEY, b"x")
    assert "the exception of /ann/a/0 is not kept" in caplog.text


def test_what_was_released_is_read_again(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    store.append(KEY, 0, line(1))
    LogStore(tmp_path).append(KEY, len(line(1)), line(2))
    assert store.size(KEY) == len(line(1))
    store.release("/ann/a")
    assert store.size(KEY) == 2 * len(line(1))
    store.release("/ann/unknown")


@pytest.mark.parametrize("name", ["", "/", "ann", "/ann/../x", "/ann//x", "/./a"])
def test_what_is_no_job_has_no_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="not a job id"):
        LogStore(tmp_path).append((name, 0, 0), 0, line(1))
    assert list(tmp_path.iterdir()) == []


def test_without_room_what_comes_is_dropped_and_counted_and_a_note_spared(tmp_path: Path) -> None:
    spared: list[bool] = []

    def spare() -> bool:
        spared.append(True)
        return True

    store = LogStore(tmp_path, 2**30, lambda count: False, spare)
    lost, note = line(1), line(2, 30, note=True)
    assert store.append(KEY, 0, lost) == len(lost)
    assert spared == []
    store.append(KEY, len(lost), note)
    assert spared == [True]
    store.append(KEY, len(lost + note), lost)
    assert store.size(KEY) == len(lost + note + lost)
    for reader in (store, LogStore(tmp_path)):
        assert [(record.hole, record.data) for record in reader.read(KEY, 0)] == [
            (len(lost), lost_log(len(lost), DROPPED)),
            (0, b"2" * 30),
            (len(lost), lost_log(len(lost), DROPPED)),
        ]
        assert reader.size(KEY) == len(lost + note + lost)
    long = line(3, 2000, note=True)
    store.append(KEY, store.size(KEY), long)
    assert len(spared) == 1, "a note is short"
    for other in (note + lost, note + b"x", b"\xff" * 60, b""):
        store.append(KEY, store.size(KEY), other)
        assert len(spared) == 1, "what is not only notes is output"


def test_the_longest_logs_are_shed_first_and_only_as_needed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = LogStore(tmp_path)
    for name, lines in (("/ann/long", 300), ("/ann/middle", 200), ("/ann/short", 1)):
        store.append((name, 0, 0), 0, b"".join(line(number) for number in range(lines)))
    (tmp_path / "ann/short/~0.1.log").touch()
    (tmp_path / "other.log").write_bytes(bytes(10**6))
    size = len(line(1))
    with caplog.at_level(logging.ERROR):
        assert shed(tmp_path, 300 * size + 1) == 500 * size
    assert len(caplog.records) == 2
    assert "~0.0.log is dropped, so that the controller can start" in caplog.text
    again = LogStore(tmp_path)
    assert [again.size((f"/ann/{name}", 0, 0)) for name in ("long", "middle", "short")] == [
        300 * size,
        200 * size,
        size,
    ]
    assert [record.hole for record in again.read(("/ann/middle", 0, 0), 0)] == [200 * size]
    assert shed(tmp_path, 0) == 0
    assert shed(tmp_path, 10**6) == size, "an empty file frees nothing"
    assert shed(tmp_path / "nothing", 5) == 0


def test_small_logs_of_ended_jobs_are_on_a_shelf_and_come_back_when_they_are_read(tmp_path: Path) -> None:
    root, shelf = tmp_path / "logs", LogShelf(tmp_path / "small.db")
    store = LogStore(root, shelf=shelf)
    for key in (KEY, ("/ann/a", 1, 0), ("/ann/a/child", 0, 0), ("/ann/long", 0, 0)):
        store.append(key, 0, line(1) if key[0] != "/ann/long" else line(1, 9000))
        store.release(key[0])
    store.keep_result(KEY, b"result")
    store.release("/ann/a")
    shelved = {
        JobId(name): files for name in ("/ann/a", "/ann/a/child", "/ann/long") if (files := store.small_files(name))
    }
    assert list(shelved) == ["/ann/a", "/ann/a/child"], "a long log stays a file"
    shelf.put(shelved)
    assert store.keys("/ann/a/child"), "somebody reads it now"
    for name, content in shelved.items():
        store.drop_shelved(name, content)
    assert sorted(store.stored_jobs()) == ["/ann/a/child", "/ann/long"], "what is read stays"

    again = LogStore(root, shelf=LogShelf(tmp_path / "small.db"))
    assert sorted(again.stored_jobs("/ann/a")) == ["/ann/a", "/ann/a/child"]
    assert again.keys("/ann/a") == [KEY, ("/ann/a", 1, 0)]
    assert [record.data for record in again.read(KEY, 0)] == [b"1" * 10]
    assert again.read_result(KEY, 0, 9) == (b"result", 6)
    again.drop_shelved("/ann/a", shelved[JobId("/ann/a")])
    again.remove_log(KEY)
    again.release("/ann/a")
    assert again.keys("/ann/a") == [("/ann/a", 1, 0)], "a removed log does not come back"
    again.remove("/ann/a")
    assert again.keys("/ann/a") == []
    (tmp_path / "small.db").write_bytes(b"damaged" * 999)
    assert LogStore(root, shelf=LogShelf(tmp_path / "small.db")).keys("/ann/gone") == []
