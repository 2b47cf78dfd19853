from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from marin.execution.log.kept_log import KeptLog, complete_former
from marin.execution.log.notes import LogEndNote, LogNote, Note, text_of_note
from marin.execution.log.sections import LOST, Section, heading_in_job
from marin.execution.log.step_log import StepLog

ONE = Section(heading_in_job("=== attempt 1, 2026-01-01T00:00:01.000+00:00, host, process 7"))


class Lease:
    """A lease that is held."""

    held = True

    def __init__(self, output_path: str) -> None:
        self.output_path = output_path

    def write(self, name: str, content: bytes) -> None:
        raise AssertionError("nothing is written under it on a disk")


class Cluster:
    """A job whose cluster keeps its log."""

    def __init__(self, outputs: Mapping[tuple[int, int], Sequence[tuple[int, bytes]]]) -> None:
        self.outputs = outputs

    def attempt_outputs(self) -> Mapping[tuple[int, int], Sequence[tuple[int, bytes]]]:
        return self.outputs


class Remembering(LocalClient):
    """A client whose cluster remembers one job."""

    def __init__(self, job: Any) -> None:
        super().__init__()
        self.job = job

    def ended_job(self, name: str) -> Any:
        return self.job if name == "talk" else None


@pytest.fixture
def log(tmp_path: Path) -> StepLog:
    return StepLog(str(tmp_path), 1, Lease(str(tmp_path)))


def lines(directory: Path) -> list[str]:
    return [line for line in (directory / ".log").read_text().splitlines() if line != ONE.opening]


def kept(log: StepLog, directory: Path) -> KeptLog:
    return KeptLog(log, str(directory), 1, closing_seconds=0.05)


BEGUN, ENDED, FAILED = LogNote(ONE.heading, 0, False), LogEndNote(ONE.heading, False), LogEndNote(ONE.heading, True)
BAD = "=== failed: ValueError: bad"


@pytest.mark.parametrize(
    ("came", "error", "written"),
    [
        # The process has what came before, too.
        (["before", BEGUN, "within", ENDED, "after"], None, ["after"]),
        # It cannot keep its log, and says so or not.
        (
            ["before", LogNote("", 0, False), "within"],
            ValueError("bad"),
            ["before", "within", "=== failed: ValueError: bad"],
        ),
        (["before", "within"], ValueError("bad"), ["before", "within", "=== failed: ValueError: bad"]),
        # It has told of its failure.
        ([BEGUN, FAILED], ValueError("bad"), []),
    ],
)
def test_a_run_writes_what_the_process_does_not(
    log: StepLog, tmp_path: Path, came: Sequence[str | Note], error: ValueError | None, written: list[str]
) -> None:
    its = kept(log, tmp_path)
    for each in came:
        if isinstance(each, str):
            its.add(0, [each])
        else:
            its.take(0, each)
    job: Any = object()
    its.end(job, Lease(str(tmp_path)))
    log.end(error, next_delay=2)
    assert [line for line in lines(tmp_path) if "process" not in line] == [*written, "=== attempt 2 follows in 2 s"]
    assert (tmp_path / ".error").exists() is (BAD in written)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_killed_processs_part_is_completed_from_its_clusters_log(log: StepLog, tmp_path: Path, guarded: bool) -> None:
    (tmp_path / ".log").write_text(f"{ONE.opening}\none\n")
    its = KeptLog(log, str(tmp_path), 1, closing_seconds=1000)  # the cluster may have killed its guard, too
    note = LogNote(ONE.heading, 0, guarded)
    its.take(0, note)
    other = [(1, text_of_note(LogNote("another's", 0, False)).encode() + b"x\n")]
    job: Any = Cluster({(0, 0): other, (0, 1): [(1, text_of_note(note).encode()), (1, b"one\ntwo\nthr")]})
    its.end(job, Lease(str(tmp_path)))
    log.end(ValueError("killed"))
    assert lines(tmp_path) == ["one", "two", "thr", ONE.closing, "=== failed: ValueError: killed"]


def test_what_nobody_has_is_marked(log: StepLog, tmp_path: Path) -> None:
    (tmp_path / ".log").write_text(f"{ONE.opening}\none\n")
    its = kept(log, tmp_path)
    its.take(0, LogNote(ONE.heading, 0, True))
    job: Any = object()
    its.end(job, Lease(str(tmp_path)))
    assert lines(tmp_path) == ["one", LOST, ONE.closing]


@pytest.mark.parametrize("written", ["", f"{ONE.opening}\none\n"])
def test_a_run_completes_what_the_job_of_a_killed_run_printed(tmp_path: Path, written: str) -> None:
    """Both the run and its job's process were killed; the job was not adopted, as it had ended."""
    if written:
        (tmp_path / ".log").write_text(written)
    output = text_of_note(LogNote(ONE.heading, 0, False)).encode() + b"one\ntwo\n"
    lease: Any = Lease(str(tmp_path))
    with set_current_client(Remembering(Cluster({(0, 0): [(1, output)]}))):
        complete_former("talk", lease, 1)
        complete_former("talk", lease, 1)
        complete_former("other", lease, 1)
    assert lines(tmp_path) == ["one", "two", ONE.closing]
