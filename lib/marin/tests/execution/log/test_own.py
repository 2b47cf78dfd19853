"""The part of a log that a job's process writes, with an output that the test plays."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from marin.execution.log.completion import complete, settle_former
from marin.execution.log.job_files import JobLogFiles
from marin.execution.log.notes import HereNote, text_of_note
from marin.execution.log.own import OwnPart
from marin.execution.log.sections import LOST, Section, heading_in_job

FIRST = Section(heading_in_job("=== attempt 1, 2026-01-01T00:00:01.000+00:00, host, process 7"))
THIRD = Section(heading_in_job("=== attempt 3, 2026-01-01T00:00:03.000+00:00, host, process 9"))
SECOND = Section(heading_in_job("=== attempt 2, 2026-01-01T00:00:02.000+00:00, host, process 8"))


class Pipes:
    """Output that comes by two pipes, the second of which is late."""

    descriptor = None

    def __init__(self, section: Section) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.looks = 0
        self._mark = text_of_note(HereNote(section.heading)).encode()
        self._is_ending = False

    def end(self) -> None:
        self._is_ending = True
        self.looks = 0

    def read(self) -> Sequence[tuple[int, bytes]]:
        self.looks += 1
        if self._is_ending and self.looks == 2:
            self.pieces.append((1, b"out, last" + self._mark))
        if self._is_ending and self.looks == 4:
            self.pieces.append((2, b"err, last\n" + self._mark))
        found, self.pieces = self.pieces, []
        return found

    def close(self) -> None:
        self.pieces.append((1, b"never read"))


class Overrun(Pipes):
    """Output that its cluster lets go of when so much of it has been read."""

    def __init__(self, section: Section, looks: Sequence[Sequence[tuple[int, bytes]]] = ()) -> None:
        super().__init__(section)
        self._looks = iter(looks)

    def read(self) -> Sequence[tuple[int, bytes]]:
        for found in self._looks:
            return found
        raise ValueError("not a record")


def part(source: Pipes, directory: Path, section: Section = FIRST) -> OwnPart:
    return OwnPart(source, JobLogFiles(str(directory), section), 0, pause_seconds=0.01)


def log(directory: Path) -> list[str]:
    return (directory / ".log").read_text().splitlines()


def test_lines_are_there_while_the_function_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = Pipes(FIRST)
    own = part(source, tmp_path)
    own.begin()
    source.pieces += [(1, b"one\nha"), (2, b"err\n")]
    eventually(lambda: (tmp_path / ".log").exists() and len(log(tmp_path)) == 3, "two lines are written")
    source.pieces += [(1, b"lf\n")]
    source.end()
    own.end(None)
    assert log(tmp_path) == [FIRST.opening, "one", "err", "half", "out, last", "err, last", FIRST.closing]
    told = capfd.readouterr().out
    assert told.index('"log": ') < told.index('"here": ') < told.index('"log_end": ')


def test_a_failure_is_in_both_files(tmp_path: Path) -> None:
    source = Pipes(FIRST)
    own = part(source, tmp_path)
    own.begin()
    source.end()
    own.end(LookupError("no shard\nin the bucket"))
    assert log(tmp_path)[-2:] == ["=== failed: LookupError: no shard", FIRST.closing]
    assert (tmp_path / ".error").read_text().startswith(f"{FIRST.opening}\n")
    assert "in the bucket" in (tmp_path / ".error").read_text()


def test_unreadable_output(tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    own = part(Overrun(FIRST), tmp_path)
    own.begin()
    own.end(None)
    assert log(tmp_path) == [FIRST.opening], "open, for the run to complete"
    told = capfd.readouterr().out
    # The run completes a part that was begun and of which no end was told.
    assert FIRST.heading in told
    assert '"log_end"' not in told
    assert '"log": ""' not in told
    assert "not a record" in caplog.text


def test_a_part_that_was_overrun_stays_open_and_is_completed(tmp_path: Path) -> None:
    own = part(Overrun(FIRST, [[(1, b"one\n")]]), tmp_path)
    own.begin()
    own.end(None)
    assert log(tmp_path) == [FIRST.opening, "one"]
    assert complete(JobLogFiles(str(tmp_path), FIRST), ["one", "two", "three"])
    assert log(tmp_path) == [FIRST.opening, "one", "two", "three", FIRST.closing]


def test_a_former_part_that_nobody_completes_is_marked_before_the_next_begins(tmp_path: Path) -> None:
    (tmp_path / ".log").write_text(f"{FIRST.opening}\nhalf of it\n")
    source = Pipes(SECOND)
    own = part(source, tmp_path, SECOND)
    own.begin()
    source.pieces.append((1, b"next\n"))
    source.end()
    own.end(None)
    before = log(tmp_path)
    assert before[:5] == [FIRST.opening, "half of it", LOST, FIRST.closing, SECOND.opening]
    assert not complete(JobLogFiles(str(tmp_path), FIRST), ["half of it", "late"]), "who comes now is too late"
    assert log(tmp_path) == before


def test_a_part_is_open_before_its_function_begins(tmp_path: Path) -> None:
    """It may be killed before its first look: who comes after it is to see that there was one."""
    part(Pipes(FIRST), tmp_path).begin()
    assert log(tmp_path) == [FIRST.opening]


def test_the_parts_of_killed_processes_are_completed_in_their_order(tmp_path: Path) -> None:
    (tmp_path / ".log").write_text(f"{FIRST.opening}\n{SECOND.opening}\n")
    second = JobLogFiles(str(tmp_path), SECOND)
    waits = threading.Thread(target=settle_former, args=(second, 60))
    waits.start()
    assert complete(JobLogFiles(str(tmp_path), FIRST), ["a"])
    waits.join(60)
    assert not waits.is_alive()
    settle_former(JobLogFiles(str(tmp_path), THIRD), 0)
    assert log(tmp_path)[-2:] == [LOST, SECOND.closing], "only what is open"


def test_a_killed_process_that_said_nothing_has_no_part(tmp_path: Path) -> None:
    assert not complete(JobLogFiles(str(tmp_path), FIRST), [])
    assert os.listdir(tmp_path) == []
    assert complete(JobLogFiles(str(tmp_path), FIRST), ["a"])
    assert log(tmp_path) == [FIRST.opening, "a", FIRST.closing]
