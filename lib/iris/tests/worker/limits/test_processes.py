"""Whose processes use how much, by /proc alone."""

import os
from pathlib import Path

import pytest

from iris.worker.limits.processes import ProcessStat, Tally, parse_stat, pids_of, proportional_bytes, read_table, tally


def stat(parent: int, memory: int = 1, threads: int = 1, cpu: int = 0) -> ProcessStat:
    return ProcessStat(parent, cpu, memory, threads)


TABLE = {
    1: stat(0),
    10: stat(1),  # the guardian
    20: stat(10, 100, cpu=5),  # an attempt
    21: stat(20, 10, threads=3, cpu=1),
    22: stat(21, 1),
    30: stat(10, 1000),  # another
    31: stat(10, 7),  # an orphan of the first
    32: stat(31, 7),
    40: stat(99, 5000),  # its parent has just ended
    23: stat(20, 0, threads=0),  # a zombie
}
OWNERS = {20: "a", 30: "b", 31: "a"}


def test_a_process_is_its_nearest_known_ancestors_owners() -> None:
    assert tally(TABLE, OWNERS) == {"a": Tally(6, 125, 7), "b": Tally(0, 1000, 1)}
    assert pids_of("a", TABLE, OWNERS) == {20, 21, 22, 31, 32}


def test_a_circle_of_parents_ends() -> None:
    """Pids are read one after the other: what is read need never have been true at one moment."""
    assert tally({5: stat(6), 6: stat(5)}, {1: "a"}) == {}


def test_a_program_may_have_any_name() -> None:
    line = b"7 (a ) R 1 2) S 3 0 0 0 0 0 0 0 0 0 100 50 25 25 20 0 4 0 9 5000 6 " + b"0 " * 28
    found = parse_stat(line)
    ticks = 1000 // os.sysconf("SC_CLK_TCK")
    assert found == ProcessStat(3, 200 * ticks, 6 * os.sysconf("SC_PAGE_SIZE"), 4)


@pytest.mark.parametrize("line", [b"", b"7 (sh", b"7 (sh) R 1"])
def test_what_is_no_line_of_stat_is_refused(line: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_stat(line)


def test_this_process_is_in_the_table() -> None:
    table = read_table()
    assert table[os.getpid()].parent == os.getppid()
    assert table[os.getpid()].memory_bytes > 1_000_000
    assert 0 < proportional_bytes({os.getpid()}) < 1 << 40
    assert proportional_bytes({0x7FFFFFFF}) == 0, "it has ended"


def test_memory_that_may_not_be_looked_at_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "smaps_rollup").mkdir()
    assert proportional_bytes({5}, str(tmp_path)) == 0
