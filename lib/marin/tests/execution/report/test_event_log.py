"""The file of a run's events."""

import json
import os
import threading
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from marin.execution.report.event_log import EventLog, event_line, event_log_path
from marin.execution.report.events import RunEnded, RunEvent, RunStarted, StepEnd, StepEnded, StepQueued, StepStarted
from rigging.errors import Unavailable

EVENTS: list[RunEvent] = [
    StepQueued(1.0, "a", "/p/a-1"),
    StepStarted(2.0, "a", "/p/a-1"),
    StepEnded(3.0, "a", "/p/a-1", StepEnd.FAILED, 1.0, "ValueError: bad", "job 7"),
    StepEnded(3.0, "b", "/p/b-1", StepEnd.CACHED),
    RunEnded(4.0, 3.0),
]


def test_each_event_is_a_line(tmp_path: Path) -> None:
    log = EventLog()
    info_path = str(tmp_path / "experiments" / "script-0a1b2c.json")
    for event in [RunStarted(0.5, 2, "d", info_path), *EVENTS]:
        log.on_event(event)
    path = Path(log.path)
    assert path.parent == tmp_path / "experiments"
    assert path.name.startswith("script-0a1b2c-19700101T000000.500000Z-")
    assert path.name.endswith(".events.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = ["run_started", "step_queued", "step_started", "step_ended", "step_ended", "run_ended"]
    assert [line["event"] for line in lines] == kinds
    assert lines[3] == {
        "event": "step_ended", "time": 3.0, "name": "a", "path": "/p/a-1", "status": "failed", "seconds": 1.0,
        "queued_seconds": 0.0, "error": "ValueError: bad", "log": "job 7", "differences": [], "attempts": [],
    }  # fmt: skip


def test_a_reader_sees_an_event_before_the_runs_end(tmp_path: Path) -> None:
    log = EventLog()
    log.on_event(RunStarted(0.5, 2, None, str(tmp_path / "i.json")))
    log.on_event(EVENTS[0])
    path = Path(log.path)
    eventually(lambda: path.exists() and event_line(EVENTS[0]) in path.read_text(), "the event is written")
    log.on_event(EVENTS[-1])


class Bucket:
    """An object store that fails so many times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.written: list[bytes] = []
        self.asked = threading.Event()

    def write(self, path: str, data: bytes) -> None:
        self.asked.set()
        if self.failures:
            self.failures -= 1
            raise Unavailable("no answer")
        self.written.append(data)


def test_an_object_store_has_it_whole_at_the_end_in_few_writes() -> None:
    bucket = Bucket(failures=0)
    log = EventLog(upload=bucket.write)
    for event in [RunStarted(0.5, 2, None, "gs://bucket/experiments/i.json"), *EVENTS]:
        log.on_event(event)
    assert [content.count(b"\n") for content in bucket.written] == [6]
    assert log.path == event_log_path("gs://bucket/experiments/i.json", 0.5, os.getpid())


def test_a_failed_upload_is_made_up_for_and_one_at_the_end_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    bucket = Bucket(failures=1)
    log = EventLog(upload_seconds=0.001, upload=bucket.write)
    log.on_event(RunStarted(0.5, 2, None, "gs://bucket/i.json"))
    assert bucket.asked.wait(20)
    for event in EVENTS:
        log.on_event(event)
    assert bucket.written[-1].count(b"\n") == 6, "nothing is missing at the end"
    assert "could not be written, retrying: no answer" in caplog.text
    assert "cannot be written" not in caplog.text
    caplog.clear()
    bucket.failures = 1000
    log.on_event(RunStarted(0.5, 2, None, "gs://bucket/i.json"))
    log.on_event(EVENTS[-1])
    assert [text for text in caplog.messages if "retrying" not in text] == [
        f"the event log {log.path} cannot be written: no answer"
    ]


@pytest.mark.parametrize("has_info", [True, False])
def test_what_cannot_be_written_is_only_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_info: bool
) -> None:
    (tmp_path / "file").write_text("")
    log = EventLog()
    for event in [RunStarted(0.5, 2, None, str(tmp_path / "file" / "i.json") if has_info else None), *EVENTS]:
        log.on_event(event)
    assert ("cannot be written" in caplog.text) is has_info
    assert (log.path is None) is not has_info


def test_lines_are_json_whatever_is_in_them() -> None:
    for event in (
        StepQueued(1.5, 'quo"te\n', "/p/ü"),
        StepEnded(1e-7, "a", "/p", StepEnd.LOST, 0.0, "line\nline\u2028", None),
        RunEnded(1.0, 2.0, 'er"ror'),
    ):
        line = event_line(event)
        assert "\n" not in line
        fields = json.loads(line)
        assert fields.pop("event")
        expected = {name: getattr(event, name) for name in type(event).__slots__}
        assert fields == json.loads(json.dumps(expected))  # tuples are lists there
