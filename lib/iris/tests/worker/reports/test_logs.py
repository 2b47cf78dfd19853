from pathlib import Path

import pytest

from iris.rpc.logformat import decode_all
from iris.worker.output.log_room import stored_bytes
from iris.worker.output.log_writer import LogWriter
from iris.worker.reports.logs import AttemptLog


@pytest.fixture
def log(tmp_path: Path) -> AttemptLog:
    """A log of 100 bytes in two lines and its newlines, whose writer has ended."""
    writer = LogWriter(tmp_path / "log")
    writer.feed(False, b"a\n" + b"x" * 65 + b"\n", 1)
    writer.finish(2)
    log = AttemptLog(tmp_path / "log")
    assert log.grew(writer.size)
    return log


def test_reading_again_after_the_file_was_closed(log: AttemptLog, tmp_path: Path) -> None:
    log.sent = log.size
    log.finish()
    assert [record.data for record in decode_all(log.read(0, 1000))] == [b"a", b"x" * 65]
    log.remove()
    assert list(tmp_path.iterdir()) == []


def test_no_more_is_read_than_was_asked_for_and_nothing_beyond_what_the_writer_told(log: AttemptLog) -> None:
    whole = log.read(0, 100)
    assert len(whole) == log.size == 100
    assert b"".join(log.read(offset, 7) for offset in range(0, 100, 7)) == whole
    assert (log.read(99, 7), log.read(100, 7)) == (whole[99:], b"")
    log.sent = 100
    assert [log.grew(101), log.grew(100), log.grew(30)] == [True, False, False], "whether there is something to send"
    assert (len(log.read(0, 1000)), log.read(30, 1000)) == (30, b"")


@pytest.mark.parametrize(
    ("sent", "acknowledged", "acked", "sent_then"),
    [
        (100, [40], 40, 100),
        # A standstill means: send again.
        (100, [40, 40], 40, 40),
        (20, [50], 50, 50),
        # Never beyond what there is.
        (20, [50, 1000], 100, 100),
    ],
)
def test_acknowledgements(log: AttemptLog, sent: int, acknowledged: list[int], acked: int, sent_then: int) -> None:
    log.sent = sent
    for offset in acknowledged:
        log.acknowledge(offset)
    assert (log.acked, log.sent) == (acked, sent_then)


def test_words_that_found_no_room_come_after_the_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abc")
    log = AttemptLog(tmp_path / "log")
    log.grew(3)
    log.append_words(b"words")
    log.append_words(b"again")  # told twice, by a guardian that was asked again
    assert log.size == 8
    assert b"".join(log.read(offset, 2) for offset in (0, 2, 3, 5, 7)) == b"abcwords"
    assert log.read(8, 5) == b""


class SmallLog(AttemptLog):
    LOOK_EVERY_BYTES = 4096
    KEPT_BYTES = 40_000


@pytest.mark.parametrize("is_short", [True, False])
def test_the_disk_gets_back_what_was_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_short: bool) -> None:
    monkeypatch.setattr("iris.worker.reports.logs.is_short", lambda path: is_short)
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000)
    log = SmallLog(path)
    log.grew(100_000)
    with path.open("rb") as file:
        before = stored_bytes(file.fileno())
        log.acknowledge(80_000)
        if stored_bytes(file.fileno()) == before:
            pytest.skip("this file system has no holes")
    kept_from = 80_000 if is_short else 40_000
    assert log.read(kept_from, 100_000 - kept_from) == b"x" * (100_000 - kept_from)
    assert (b"x" in log.read(39_000, 38_000)) != is_short


def test_a_new_log_is_empty_and_a_session_ships_from_where_the_controller_is(log: AttemptLog, tmp_path: Path) -> None:
    new = AttemptLog(tmp_path / "new")
    assert (new.size, new.sent, new.acked, new.read(0, 10), new.grew(0)) == (0, 0, 0, b"", False)
    new.remove()  # there is no file
    log.sent = log.acked = 80
    log.rewind(30)
    assert (log.acked, log.sent) == (30, 30)
    log.rewind(1000)
    assert (log.acked, log.sent) == (100, 100)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_is_open_until_all_of_a_finished_log_was_sent(log: AttemptLog) -> None:
    before = descriptors()
    log.read(0, 10)
    assert descriptors() == before + 1
    log.sent = log.size
    log.release_if_done()
    assert descriptors() == before + 1, "more may come"
    log.sent = 10
    log.finish()
    assert descriptors() == before + 1, "not all of it was sent"
    log.sent = log.size
    log.release_if_done()
    assert descriptors() == before
    log.read(0, 10)
    log.release()
    log.release()
    assert descriptors() == before


def test_a_little_is_not_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("iris.worker.reports.logs.is_short", lambda path: True)
    monkeypatch.setattr("iris.worker.reports.logs.punch", lambda descriptor, end: asked.append(end))
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1024 * 1024)
    log = AttemptLog(path)
    log.grew(1024 * 1024)
    for offset in range(0, 1024 * 1024, 64 * 1024):
        log.acknowledge(offset)
    assert asked == [256 * 1024, 512 * 1024, 768 * 1024], "a system call for each quarter of a megabyte"
