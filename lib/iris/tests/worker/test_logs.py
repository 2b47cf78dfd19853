from pathlib import Path

import pytest

from iris.rpc.logformat import decode_all
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
