from pathlib import Path

import pytest

from iris.rpc.logformat import decode_all
from iris.worker.guardian.log_room import stored_bytes
from iris.worker.guardian.log_writer import LogWriter
from iris.worker.logs import AttemptLog


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


def test_nothing_is_read_beyond_what_the_writer_told(log: AttemptLog) -> None:
    assert log.size == 100
    log.grew(30)
    assert len(log.read(0, 1000)) == 30
    assert log.read(30, 1000) == b""


def test_there_is_something_to_send_until_all_of_it_was_sent(log: AttemptLog) -> None:
    log.sent = 100
    assert not log.grew(100)
    assert log.grew(101)


def test_acknowledgements_move_forward_and_a_standstill_means_send_again(log: AttemptLog) -> None:
    log.sent = log.size
    log.acknowledge(40)
    assert (log.acked, log.sent) == (40, log.size)
    log.acknowledge(40)
    assert log.sent == 40


def test_words_that_found_no_room_come_after_the_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abc")
    log = AttemptLog(tmp_path / "log")
    log.grew(3)
    log.append_words(b"words")
    log.append_words(b"again")  # told twice, by a guardian that was asked again
    assert log.size == 8
    assert b"".join(log.read(offset, 2) for offset in (0, 2, 3, 5, 7)) == b"abcwords"
    assert log.read(8, 5) == b""


@pytest.mark.parametrize("is_short", [True, False])
def test_the_disk_gets_back_what_the_controller_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_short: bool
) -> None:
    monkeypatch.setattr("iris.worker.logs._LOOK_EVERY_BYTES", 4096)
    monkeypatch.setattr("iris.worker.logs.is_short", lambda path: is_short)
    monkeypatch.setattr("iris.worker.logs._KEPT_BYTES", 40_000)
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000)
    log = AttemptLog(path)
    log.grew(100_000)
    with path.open("rb") as file:
        before = stored_bytes(file.fileno())
        log.acknowledge(80_000)
        if stored_bytes(file.fileno()) == before:
            pytest.skip("this file system has no holes")
    kept_from = 80_000 if is_short else 40_000
    assert log.read(kept_from, 100_000 - kept_from) == b"x" * (100_000 - kept_from)
    assert (b"x" in log.read(39_000, 38_000)) != is_short
