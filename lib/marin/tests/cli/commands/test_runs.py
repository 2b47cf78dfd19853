import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from marin.cli.context import CliContext
from marin.execution import Executor, ExecutorStep, output_path_of, versioned
from marin.output_files import follows_line
from rigging.distributed_lock import create_lock
from rigging.lease.record import Lease
from support.marin.recorded_runs import Done, RecordedStorage, ended, started, step_ended

Marin = Callable[..., Done]


def without(root: Path, text: str) -> str:
    return text.replace(str(root), "ROOT")


def test_runs_are_listed_newest_first_with_how_they_ended(storage: RecordedStorage, marin: Marin) -> None:
    a, b = storage.step("raw/a-000001"), storage.step("b-000002")
    storage.run("train-0a1b2c", [a, b], [started(2), step_ended(a), step_ended(b, "cached"), ended()], hour=1)
    storage.run("train-0a1b2c", [a, b], [started(2), step_ended(a, "failed")], hour=3)
    storage.run("eval-777777", [a], [started(1), ended("KeyboardInterrupt")], hour=2)
    storage.run("old-123456", [a])
    done = marin("runs")
    assert done.code == 0
    assert done.out == (
        "RUN                                     STARTED              TOOK       STATE       STEPS"
        "                     USER  DESCRIPTION\n"
        "train-0a1b2c-20231114T030000.000000Z-4  2023-11-14 03:00:00  -          unfinished  2: 1 failed"
        "               ada   Train.\n"
        "eval-777777-20231114T020000.000000Z-4   2023-11-14 02:00:00  1 min 2 s  stopped     1"
        "                         ada   Train.\n"
        "train-0a1b2c-20231114T010000.000000Z-4  2023-11-14 01:00:00  1 min 2 s  succeeded   2: 1 succeeded, 1 cached"
        "  ada   Train.\n"
        "old-123456                              2023-11-14 22:13:20  -          recorded    -"
        "                         ada   Train.\n"
    )


def test_json_has_the_documented_keys(storage: RecordedStorage, marin: Marin) -> None:
    step = storage.step("a-000001")
    name = storage.run("train-0a1b2c", [step], [started(host="h", user="bob"), ended(ends={"failed": 1})])
    [listed] = marin("runs", "--json").json
    ends = {"succeeded": 0, "cached": 0, "failed": 1, "dep_failed": 0, "lost": 0}
    times = {"started": 1699923600.0, "state": "failed", "seconds": 62.0, "steps": 1, "ends": ends}
    who = {"user": "bob", "host": "h", "description": "Train.", "git_commit": "c0ffee", "error": None, "damage": None}
    assert listed == {
        "run": name,
        "steps_id": "train-0a1b2c",
        "command": None,
        "code": None,
        "job": None,
        **times,
        **who,
    }


def test_runs_are_tagged_and_found_by_tags(storage: RecordedStorage, marin: Marin) -> None:
    name = storage.run("train-0a1b2c", [storage.step("a-000001")], [started(), ended()])
    storage.run("eval-777777", [], [started(0), ended()])
    assert marin("tag", "train", "+best", "+sweep:lr", "-cheap", "--note", "lr halved").out.endswith("lr halved\n")
    [told] = marin("tag", "train", "-sweep:lr", "--json").json
    assert told == {"run": name, "tags": ["best"], "note": "lr halved"}
    assert [run["run"] for run in marin("runs", "--tag", "best", "--json").json] == [name]
    assert "`marin tag RUN +TAG`" in marin("runs", "--tag", "none").err
    for words, reason in (
        (["best"], "write +TAG"),
        (["+a b"], "a tag is a word"),
        ([f"+{n}" for n in range(21)], "at most 20"),
    ):
        done = marin("tag", "train", *words)
        assert (done.code != 0, reason in done.err) == (True, True), done.err
    assert marin("rm", "train", "--yes").code == 0
    assert not list((storage.root / "experiments").glob("train*"))


def test_only_so_many_are_listed_and_the_rest_is_told(storage: RecordedStorage, marin: Marin, tmp_path: Path) -> None:
    for hour in range(3):
        storage.run("train-0a1b2c", [], [started(), ended()], hour=hour)
    few, every = marin("runs", "-n", "1"), marin("runs", "--all", "--json")
    assert (len(few.out.splitlines()), few.err) == (2, "marin: 2 more; --all lists them\n")
    assert (len(every.json), every.err) == (3, "")
    assert [len(marin("runs", "--state", state, "--json").json) for state in ("succeeded", "failed")] == [3, 0]
    done = marin("runs", str(tmp_path / "nowhere"))
    assert (done.code, done.out, done.err) == (0, "", f"marin: no runs in {tmp_path}/nowhere/experiments\n")
    assert marin("runs", str(tmp_path), "--json").out == "[]\n"
    assert [marin("runs", place).code for place in ("", "/")] == [2, 3]
    assert "no command 'rnus'; did you mean 'runs'?" in marin("rnus").err


def test_a_step_is_shown_by_path_or_name_and_never_guessed(storage: RecordedStorage, marin: Marin) -> None:
    storage.step("raw/a-000001", unversioned={"workers": 4})
    by_name = marin("show", "raw/a")
    assert by_name.code == 0
    assert marin("show", "raw/a-000001").out == marin("show", f"{storage.root}/raw/a-000001/").out == by_name.out
    for line in ("status    SUCCESS", "  n: 1", "  workers: 4"):
        assert line in by_name.out
    size = (storage.root / "raw/a-000001/.executor_info").stat().st_size
    assert marin("show", "raw/a", "--json").json["files"] == {".executor_info": size, ".executor_status": 7}
    storage.step("raw/alpha-000001")
    storage.step("b-000002")
    storage.step("b-000001")
    os.utime(storage.root / "b-000002/.executor_status", (1, 1))
    storage.run("train-0a1b2c", [])
    for word, code, said in (
        ("raw/alpa", 4, ["did you mean alpha"]),
        ("tran-0a1b2c", 4, ["did you mean train-0a1b2c"]),
        ("b", 0, ["b-000001 is the newest of 2 outputs of 'b'; older: ", "b-000002"]),
    ):
        done = marin("show", word)
        assert done.code == code
        assert [words for words in said if words not in done.err] == []
    assert marin("show", "b", "--json").json["path"].endswith("b-000001")
    assert (marin("show").code, marin("show", "--latest", "b").err) == (2, "")
    assert marin("show", "--latest", "--json").json["info_file"] == "train-0a1b2c.json"


def test_a_damaged_info_file_is_named_and_the_rest_is_listed(storage: RecordedStorage, marin: Marin) -> None:
    storage.run("good-0a1b2c", [])
    storage.run("torn-0a1b2c", [])
    (storage.root / "experiments" / "torn-0a1b2c.json").write_text('{"worker_id": "x')
    (storage.root / "experiments" / "notes.txt").write_text("mine")
    done = marin("runs", "--json")
    assert done.code == 0
    assert [(run["run"], bool(run["damage"])) for run in done.json] == [("good-0a1b2c", False), ("torn-0a1b2c", True)]
    assert "damaged: torn-0a1b2c.json: not the JSON of a run" in done.err
    shown = marin("show", "torn-0a1b2c")
    assert shown.code == 3
    assert "torn-0a1b2c.json is damaged" in shown.err


def test_a_run_is_shown_with_its_steps(storage: RecordedStorage, marin: Marin) -> None:
    a = storage.step("raw/a-000001")
    b = storage.step("b-000002", dependencies=[a["output_path"]])
    failed = step_ended(b, "failed", error="ValueError: no\n at")
    storage.run("train-0a1b2c", [a, b], [started(2), step_ended(a), failed])
    done = marin("show", "train")
    assert done.code == 0
    assert without(storage.root, done.out) == (
        "run          train-0a1b2c-20231114T010000.000000Z-4\n"
        "state        unfinished\n"
        "started      2023-11-14 01:00:00\n"
        "took         -\n"
        "user         ada\n"
        "host         elsewhere\n"
        "script       /work/train.py\n"
        "commit       c0ffee\n"
        "description  Train.\n"
        "steps        2: 1 succeeded, 1 failed\n"
        "\n"
        "STEP   STATUS     TOOK       PATH\n"
        "raw/a  succeeded  1 min 2 s  ROOT/raw/a-000001\n"
        "b      failed     1 min 2 s  ROOT/b-000002\n"
        "    ValueError: no\n"
    )
    listed = marin("show", "train", "--json").json
    assert [step["dependencies"] for step in listed["step_list"]] == [[], [a["output_path"]]]


def test_a_running_run_is_shown_with_its_time_and_progress_so_far(storage: RecordedStorage, marin: Marin) -> None:
    a = storage.step("a-000001")
    about = {"name": "a", "path": a["output_path"]}
    begun = {"event": "step_started", "time": time.time() - 90, **about}
    told = {"event": "step_progressed", "time": time.time(), "done": 120, "total": 500, **about}
    storage.run("train-0a1b2c", [a], [])
    begin = {**started(2), "host": os.uname().nodename}
    log = storage.root / "experiments" / time.strftime(f"train-0a1b2c-%Y%m%dT%H%M%S.000000Z-{os.getpid()}.events.jsonl")
    log.write_text("".join(f"{json.dumps(event)}\n" for event in (begin, begun, told)))
    shown = marin("show", "train").out
    assert "state        running" in shown
    assert re.search(r"^took .* so far$", shown, re.MULTILINE)
    assert re.search(r"^a +running +1 min 3\d s so far +/.*\n +120/500 \(24 %\)$", shown, re.MULTILINE)


def test_attempts_of_a_step_are_shown_with_what_they_used(storage: RecordedStorage, marin: Marin) -> None:
    a, b = storage.step("a-000001"), storage.step("b-000002")
    first = {"outcome": "timed out", "seconds": 60.0, "cpu_seconds": 2.0, "peak_bytes": 1 << 30, "error": "Late: 1\n2"}
    last = {"outcome": "succeeded", "seconds": 3.0, "cpu_seconds": 1.5, "peak_bytes": 1 << 20, "error": None}
    events = [started(2), step_ended(a, attempts=[first, last]), step_ended(b, attempts=[7, {"outcome": None}])]
    older = storage.run("train-0a1b2c", [a, b], events)
    assert without(storage.root, marin("show", "train").out).endswith(
        "STEP  STATUS     TOOK       CPU    MEMORY  PATH\n"
        "a     succeeded  1 min 2 s  3.5 s  1 GiB   ROOT/a-000001\n"
        "    attempt 1 timed out after 1 min 0 s: Late: 1; attempt 2 succeeded after 3.0 s\n"
        "b     succeeded  1 min 2 s  -      -       ROOT/b-000002\n"
    )
    listed = marin("show", "train", "--json").json["step_list"]
    assert [step["attempts"] for step in listed] == [[first, last], [{"outcome": None}]]
    path = a["output_path"]
    retried = {"event": "step_retrying", "path": path, "attempt": 1, "outcome": "preempted", "error": "gone"}
    begun = [{"event": "step_job_queued", "path": path, "reason": "no room"}, {"event": "step_started", "path": path}]
    newer = storage.run("train-0a1b2c", [a], [started(), {**retried, "seconds": 1.5}, *begun], hour=2)
    shown = marin("show", "a", "--json").json["attempts"]
    assert [(each["run"], each["attempt"], each["outcome"]) for each in shown] == [
        *((newer, 1, "preempted"), (newer, 2, "running")),
        *((older, 1, "timed out"), (older, 2, "succeeded")),
    ]
    assert shown[3].items() >= last.items()
    told = " ".join(marin("show", "a").out.split())
    assert f"2 succeeded 3.0 s - 1.5 s 1 MiB {older}" in told


def test_following_goes_on_over_the_attempts_of_a_step_and_not_for_ever(storage: RecordedStorage, marin: Marin) -> None:
    """Between two of them the status is that of the first, and the log says that another one follows."""
    storage.step("a-000001", status="RUNNING")
    log = storage.root / "a-000001" / ".log"
    status = log.parent / ".executor_status"
    log.write_text("one\n")

    def add(text: str) -> None:
        with log.open("a") as file:
            file.write(text)

    happenings: list[Callable[[], object]] = [
        lambda: (add(f"=== failed: ValueError\n{follows_line(2, 3)}\n"), status.write_text("FAILED")),
        *([lambda: None] * 40),
        lambda: (status.write_text("RUNNING"), add("two\n")),
        lambda: (add("=== failed: ValueError\n"), status.write_text("FAILED")),
    ]
    done = marin("logs", "-f", "a", context=CliContext(sleep=lambda _seconds: happenings.pop(0)()))
    assert done.code == 8
    assert done.out.endswith("=== attempt 2 follows in 3 s\ntwo\n=== failed: ValueError\n")
    assert happenings == []
    log.write_text(f"{follows_line(2, 5)}\n")  # one that never comes
    slept: list[float] = []
    assert marin("logs", "-f", "a", "-n", "0", context=CliContext(sleep=slept.append)).code == 8
    assert 5 < sum(slept) < 60


def test_logs_are_the_log_then_the_error(storage: RecordedStorage, marin: Marin) -> None:
    storage.step("a-000001", status="FAILED")
    place = storage.root / "a-000001"
    done = marin("logs", "a")
    assert (done.code, done.out, done.err) == (0, "", f"marin: {place}: FAILED, and its step printed nothing\n")
    storage.step("b-000001", status="DEP_FAILED")
    assert (marin("logs", "b").code, "has not run yet" in marin("logs", "b").err) == (4, True)
    (place / ".error").write_text("Traceback: bad\n")
    done = marin("logs", "-f", "a", "--json")
    assert (done.code, json.loads(done.out)) == (8, {"path": str(place), "error": "Traceback: bad\n"})
    (place / ".log").write_text("one\ntwo\nthrée\n")
    assert marin("logs", "a").out == "one\ntwo\nthrée\nTraceback: bad\n"
    assert marin("logs", "a", "-n", "1").out == "thrée\nTraceback: bad\n"
    told = {"path": str(place), "status": "FAILED", "log": "one\ntwo\nthrée\n", "error": "Traceback: bad\n"}
    assert marin("logs", "a", "--json").json == told


def test_a_followed_log_goes_on_to_the_end_of_the_step(storage: RecordedStorage, marin: Marin) -> None:
    storage.step("a-000001", status="RUNNING")
    log = storage.root / "a-000001" / ".log"
    log.write_bytes("on\xe9\n".encode()[:-2])
    happenings: list[Callable[[], object]] = [
        lambda: log.write_bytes("oné\ntwo\n".encode()),
        lambda: log.write_text("new\n"),  # another attempt begins its own
        lambda: (log.parent / ".executor_status").write_text("SUCCESS"),
    ]
    done = marin("logs", "-f", "a", context=CliContext(sleep=lambda _seconds: happenings.pop(0)()))
    assert (done.code, done.out) == (0, "oné\ntwo\nnew\n")
    assert done.err.endswith("a-000001: SUCCESS\n")


def hold(storage: RecordedStorage, name: str, holder: str, timestamp: float) -> None:
    (storage.root / name / ".executor_status.lock").write_bytes(Lease(holder, timestamp).to_bytes())


def test_following_ends_when_the_run_is_gone_and_nobody_prints(storage: RecordedStorage, marin: Marin) -> None:
    storage.step("a-000001", status="RUNNING")
    log = storage.root / "a-000001" / ".log"
    log.write_text("one\n")
    now, slept = 1000.0, 0.0
    hold(storage, "a-000001", "elsewhere-1", now)

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds
        assert slept < 300
        if slept == 80:
            hold(storage, "a-000001", "elsewhere-1", now + slept)  # renewed

    done = marin("logs", "-f", "a", "--poll", "1", context=CliContext(sleep=sleep, now=lambda: now + slept))
    assert (done.code, done.out) == (8, "one\n")
    assert 170 <= slept < 200
    assert "a-000001: RUNNING, but its run is gone: the lease of elsewhere-1 has expired, last seen 1 min 3" in done.err


def test_a_run_has_no_log_of_its_own_and_marin_show_is_named(
    storage: RecordedStorage, marin: Marin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    run = storage.run("train-0a1b2c", [storage.step("a-000001")], [started(), ended()])
    for name in (run, "train"):
        done = marin("logs", name)
        assert done.code == 4
        assert f"{run} is a run, and each of its steps has a log: `uv run marin show {run}` lists them" in done.err
    assert "is a run" not in marin("logs", "trains").err


def test_a_job_that_prints_is_followed_although_its_run_is_gone(storage: RecordedStorage, marin: Marin) -> None:
    storage.step("a-000001", status="RUNNING")
    log = storage.root / "a-000001" / ".log"
    log.write_text("0\n")
    happenings = iter(range(1, 6))

    def sleep(_seconds: float) -> None:
        if (number := next(happenings, None)) is not None:
            log.write_text(f"{log.read_text()}{number}\n")

    done = marin("logs", "-f", "a", "--poll", "2", context=CliContext(sleep=sleep))
    assert (done.code, done.out) == (8, "0\n1\n2\n3\n4\n5\n")
    assert done.err.endswith("a-000001: RUNNING, but its run is gone: nobody holds its lease\n")


def test_a_step_whose_run_was_killed_is_shown_so(storage: RecordedStorage, marin: Marin) -> None:
    step = storage.step("a-000001", status="RUNNING")
    began = [{"event": "step_started", "path": step["output_path"]}]
    here = os.uname().nodename
    run = storage.run("train-0a1b2c", [step], [started(host=here), *began], pid=999_999_999)
    gone = "status    RUNNING, but its run is gone: nobody holds its lease"
    shown = marin("show", "a")
    assert gone in shown.out
    assert "set aside" not in shown.out
    storage.step("a-000001.forced", output_path=step["output_path"])
    told = (
        f"set aside  {step['output_path']}.forced: the earlier output, by --force; comes back unless the step succeeds"
    )
    assert told in marin("show", "a").out
    shutil.rmtree(storage.root / "a-000001.forced")
    assert marin("show", "a", "--json").json["run_is_gone"] is True
    assert [each["outcome"] for each in marin("show", "a", "--json").json["attempts"]] == ["died"]
    [in_run] = marin("show", run, "--json").json["step_list"]
    assert in_run["status"] == "died"
    stopped = storage.run("train-0a1b2c", [step], [started(), *began, ended(error="SystemExit: 143")], hour=2)
    [in_run] = marin("show", stopped, "--json").json["step_list"]
    assert in_run["status"] == "stopped"
    assert [each["outcome"] for each in marin("show", "a", "--json").json["attempts"]] == ["was stopped", "died"]

    lock = create_lock(str(storage.root / "a-000001" / ".executor_status.lock"))
    assert lock.try_acquire()
    assert marin("show", "a", "--json").json["run_is_gone"] is False
    assert "status    RUNNING\n" in marin("show", "a").out
    lock.release()

    hold(storage, "a-000001", "elsewhere-1", 1000.0)
    late = marin("show", "a", context=CliContext(now=lambda: 1300.0)).out
    assert "held by   elsewhere-1, last seen 5 min 0 s ago: its run may be gone\n" in late
    expired = marin("show", "a", context=CliContext(now=lambda: 1e6)).out
    assert "its run is gone: the lease of elsewhere-1 has expired, last seen" in expired


def test_what_the_executor_writes_is_read(
    storage: RecordedStorage, marin: Marin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(config: Any) -> None:
        raise ValueError("no cheese")

    one = ExecutorStep("one", repr, versioned(1))
    executor = Executor(str(storage.root), str(storage.root / "experiments"), "Try.")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "my train.py", raising=False)  # workers of tests have none
    monkeypatch.setattr(sys, "orig_argv", ["python", "-W", "all", "my train.py", "--api-key", "abc123def", "--lr", "3"])
    monkeypatch.setattr(sys, "argv", ["my train.py", "--lr", "3"])  # the script has taken its own options out
    with pytest.raises(RuntimeError):
        executor.run([ExecutorStep("two", bad, [output_path_of(one)])])
    [run] = marin("runs", "--json").json
    assert (run["state"], run["ends"]["succeeded"], run["ends"]["failed"]) == ("failed", 1, 1)
    assert (run["host"], run["description"], run["steps"]) == (os.uname().nodename, "Try.", 2)
    assert run["command"] == "'my train.py' --api-key [REDACTED] --lr 3"
    assert "script       'my train.py' --api-key" in marin("show", run["run"]).out
    shown = marin("show", run["run"], "--json").json
    assert [(step["name"], step["status"]) for step in shown["step_list"]] == [("one", "succeeded"), ("two", "failed")]


def test_storage_that_does_not_answer_is_named_in_one_line(marin: Marin, caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryFileSystem):
        protocol = "away"
        cachable = False

        def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
            logging.getLogger("gcsfs").error("_request out of retries", exc_info=True)
            raise ConnectionError("no route to host")

    fsspec.register_implementation("away", Away, clobber=True)
    done = marin("runs", "away://bucket/p")
    assert done.code == 5
    assert done.err == "marin: away://bucket/p/experiments cannot be read: ConnectionError: no route to host\n"
    assert caplog.text == ""


@pytest.mark.process
def test_a_reader_that_goes_away_ends_the_command_quietly(storage: RecordedStorage) -> None:
    for hour in range(20):
        storage.run("train-0a1b2c", [], [started(), ended()], hour=hour)
    program = f"{sys.executable} -m marin.cli runs --all --json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[", "")
