"""Which lines of a process a log lacks, by what stands in it."""

import pytest

from marin.execution.log.sections import (
    Section,
    heading_in_job,
    is_closed,
    lines_of,
    missing_lines,
    open_sections,
)

RUN = "=== attempt 1, 2026-01-01T00:00:00.000+00:00, host, process 1"
ONE = Section(heading_in_job("=== attempt 1, 2026-01-01T00:00:01.000+00:00, host, process 7"))
TWO = Section(heading_in_job("=== attempt 2, 2026-01-01T00:00:02.000+00:00, host, process 8"))
THIRD_REPLICA = Section(ONE.heading, 3)
FOURTH_REPLICA = Section(TWO.heading, 4)


def text(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_a_log_is_completed_once_wherever_it_stopped() -> None:
    """Who completes it need not know how far it is, nor whether somebody has done so already."""
    said = ["a", "", "=== b", "c"]
    whole = [RUN, "submitted", ONE.opening, *said, ONE.closing]
    for begun in range(2, len(whole)):
        log = text(*whole[:begun])
        missing = missing_lines(log, ONE, said)
        assert log + text(*missing) == text(*whole)
        assert not is_closed(log, ONE)
    assert is_closed(text(*whole), ONE)
    assert missing_lines(text(*whole), ONE, said) is None


def test_the_lines_of_another_process_are_not_counted() -> None:
    log = text(ONE.opening, "a", TWO.opening, "b")
    assert lines_of(log, ONE) == ["a"]
    assert missing_lines(log, ONE, ["a", "z"]) == ["z", ONE.closing]
    assert missing_lines(log, TWO, ["b"]) == [TWO.closing]


def test_replicas_are_told_apart() -> None:
    log = text(THIRD_REPLICA.opening, "[3] a", FOURTH_REPLICA.opening, "[4] b", "[3] c")
    assert lines_of(log, THIRD_REPLICA) == ["a", "c"]
    assert missing_lines(log, THIRD_REPLICA, ["a", "c", "e"]) == ["[3] e", THIRD_REPLICA.closing]
    assert open_sections(log, 3) == [THIRD_REPLICA]
    assert open_sections(log + text(THIRD_REPLICA.closing), 3) == []
    assert open_sections(log, 4) == [FOURTH_REPLICA]
    assert open_sections(log, None) == []


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("", []),
        (text(RUN, "a"), []),  # a run's own part has no end
        (text(ONE.opening, "a"), [ONE]),
        (text(ONE.opening, "a", ONE.closing), []),
        (text(ONE.opening, "a", ONE.closing, TWO.opening), [TWO]),
        (text(ONE.opening, "a", TWO.opening, "b"), [ONE, TWO]),
        (text(ONE.opening, TWO.opening, "b", ONE.closing), [TWO]),
    ],
)
def test_the_parts_whose_processes_may_be_gone_are_found(log: str, found: list[Section]) -> None:
    assert open_sections(log, None) == found


def test_what_a_run_says_in_an_open_part_is_no_line_of_it() -> None:
    """A run that has waited long enough goes on; what is missing is written after it."""
    log = text(ONE.opening, "a", "=== failed: its job is gone")
    assert missing_lines(log, ONE, ["a", "b", "c"]) == ["b", "c", ONE.closing]
    log = text(ONE.opening, "=== a", "=== failed: its job is gone", "b")
    assert missing_lines(log, ONE, ["=== a", "b", "c"]) == ["c", ONE.closing]
