"""The last lines of a log: bounded, without empty ones, and of this process only."""

from pathlib import Path

from rigging.log_tail import log_tail


def test_the_last_lines_that_hold_anything(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n\n" for number in range(20)))
    assert log_tail(log) == [f"line {number}" for number in range(5, 20)]
    assert log_tail(log, lines=2) == ["line 18", "line 19"]


def test_what_was_there_before_is_another_process_s(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\nnow\n")
    assert log_tail(log, len("before\n")) == ["now"]
    assert log_tail(log, len("before\nnow\n")) == []
    assert log_tail(log, 500) == ["before", "now"], "it was begun anew"


def test_of_a_huge_log_the_end_is_read_and_of_none_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 200_000 + b"\nlast \xff\n")
    first, last = log_tail(log)
    assert len(first) < 100_000
    assert last == "last \ufffd"
    assert log_tail(tmp_path / "none") == []
