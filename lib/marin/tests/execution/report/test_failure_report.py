import contextlib
import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep
from marin.execution.report.events import StepEnd, StepEnded
from marin.execution.report.failure_report import FailureReport, rerun_by_main
from marin.execution.report.rerun import marin_command, rerun_command, step_pattern
from marin.execution.report.words import summary_lines
from marin.execution.version.differences import WHAT_TO_TYPE
from rigging.errors import StepFailed


def raised(text: str = "bad") -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_failure_is_told_with_its_frames_its_files_and_the_way_to_run_it_again() -> None:
    report = FailureReport(rerun=lambda name: f"run {name}")
    report.add("a/b", "/p/a/b-1", raised("no\nluck"), "job /u/j")
    lines = report.text().splitlines()
    assert lines[:2] == ["step a/b failed: ValueError: no", "  Traceback (most recent call last):"]
    assert "    raise ValueError(text)" in [line[2:] for line in lines]
    assert lines[-6:] == [
        "  ValueError: no", "  luck", "  log:   /p/a/b-1/.log", "  error: /p/a/b-1/.error", "  job:   /u/j",
        "  to run it again: run a/b",
    ]  # fmt: skip


def test_a_run_that_is_a_job_itself_names_that_job() -> None:
    report = FailureReport(job="/u/driver")
    report.add("here", "/p/here", raised("one"))
    report.add("there", "/p/there", raised("two"), "job /u/driver/there")
    jobs = [line for line in report.text().splitlines() if line.startswith("  job: ")]
    assert jobs == ["  job:   /u/driver", "  job:   /u/driver/there"]


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("gone")


def test_a_report_goes_to_the_log_when_standard_error_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    report = FailureReport()
    report.add("a", "/p/a", raised())
    with contextlib.redirect_stderr(Closed()):
        report.show()
    assert caplog.records[-1].getMessage().startswith("step a failed: ValueError: bad")


def test_failures_are_told_once(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    report = FailureReport(rerun=lambda _: None)
    report.log()
    assert caplog.records == [], "nothing failed"
    report.add("a", "/p/a", raised())
    report.show()
    report.show()
    report.log()
    assert capsys.readouterr().err.count("step a failed: ValueError: bad") == 1
    assert caplog.records == []
    assert "again" not in report.text()


def test_failures_by_one_error_are_told_once_and_no_other_error_is_hidden_behind_them() -> None:
    report = FailureReport(most=2)
    for number in range(7):
        report.add(f"s{number}", f"/p/{number}", raised(f"no shard {number} of s{number} at /p/{number}"))
    for number, text in enumerate(("late", "early", "odd", "odd")):
        report.add(f"t{number}", f"/p/t{number}", raised(text))
    text = report.text()
    assert text.startswith("11 step(s) failed with 4 different errors, the first of each in full:\n\nstep s0 failed: ")
    assert text.count("Traceback") == 2
    same = ["  the same error: s1 -> /p/1", "  the same error: s2 -> /p/2", "  and 4 more with the same error"]
    assert "\n".join(["", *same, "", "step t0 failed: ValueError: late"]) in text
    assert text.splitlines()[-2:] == [
        "step t1 failed: ValueError: early -> /p/t1",
        "step t2 failed: ValueError: odd -> /p/t2 (and 1 more)",
    ]


def test_hints_name_marin_as_it_is_called_here() -> None:
    for environ, command in (
        ({"UV_RUN_RECURSION_DEPTH": "1"}, "uv run marin"),
        ({"IRIS_RUN_COMMAND": "uv run iris job run", "PATH": "/nowhere"}, "uv run marin"),
        ({"IRIS_RUN_COMMAND": "iris job run", "PATH": "/nowhere"}, "marin"),
        ({"PATH": "/nowhere"}, "/v/python -m marin.cli"),
    ):
        assert marin_command(environ, "/v/python") == command


def test_secrets_and_what_a_terminal_obeys_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    report = FailureReport()
    report.add("a", "/p/a", raised("HF_TOKEN=hf_abcdefghij0123 \x1b[2J"))
    assert "hf_abc" not in report.text()
    assert "\x1b" not in report.text()
    with caplog.at_level(logging.DEBUG, "marin"):
        report = FailureReport()
        report.add("a", "/p/a", raised("HF_TOKEN=hf_abcdefghij0123"))
    assert "hf_abc" not in report.text()


@pytest.mark.parametrize("name", ["a", "data/c4-en", "a.b", "x+(y)", "a[0]", "$^*?{}|\\"])
def test_a_pattern_matches_its_step_alone(name: str) -> None:
    assert re.search(step_pattern(name), name)
    assert not re.search(step_pattern(name), f"{name}/b")
    assert not re.search(step_pattern(name), name.replace(".", "x").replace("-", "x") + "z")


def test_a_notebook_is_told_the_call_that_runs_a_step_again() -> None:
    assert rerun_by_main("a") == "executor_main(ExecutorMainConfig(run_only=['^a$']), steps=...)"
    assert "run_only=['^a$'], rerun_changed='fix')" in rerun_by_main("a", tag="fix")


@pytest.mark.parametrize(
    ("words", "environ", "command"),
    [
        (["python", "-m", "exp.a"], {}, "/v/bin/python -m exp.a --run_only '^d/x$'"),
        (["python", "-m", "exp.a"], {"PATH": "/nowhere"}, "/v/bin/python -m exp.a --run_only '^d/x$'"),
        (["/v/bin/python", "a b.py"], {"UV_RUN_RECURSION_DEPTH": "1"}, "uv run python 'a b.py' --run_only '^d/x$'"),
        (
            ["python", "a.py", "--run_only", "['q']", "--strict", "--force_run_failed=false", "--pdb", "-v"],
            {"UV_RUN_RECURSION_DEPTH": "1"},
            "uv run python a.py --strict -v --run_only '^d/x$'",
        ),
        (["/v/bin/python", "a.py", "--force", "d"], {}, "/v/bin/python a.py --run_only '^d/x$' --force '^d/x$'"),
        (
            ["python", "a.py", "--prefix", "/p"],
            {"UV_RUN_RECURSION_DEPTH": "1", "MARIN_PREFIX": "/q"},
            "uv run python a.py --prefix /p --run_only '^d/x$'",
        ),
        (
            ["python", "a.py"],
            {"UV_RUN_RECURSION_DEPTH": "1", "MARIN_PREFIX": "gs://b"},
            "uv run python a.py --prefix gs://b --run_only '^d/x$'",
        ),
        (["/v/python", "a.py"], {"IRIS_JOB_ID": "/u/j"}, "uv run iris job run -- python a.py --run_only '^d/x$'"),
        (
            ["python", "-m", "exp.a"],
            {"IRIS_JOB_ID": "/u/j", "IRIS_RUN_COMMAND": "iris --cluster c job run --cpu 2"},
            "iris --cluster c job run --cpu 2 -- python -m exp.a --run_only '^d/x$'",
        ),
    ],
)
def test_the_command_that_runs_a_step_again(words: list[str], environ: dict[str, str], command: str) -> None:
    assert rerun_command("d/x", words, environ, executable="/v/bin/python") == command


def ended(name: str, end: StepEnd, seconds: float = 0.0, **fields: Any) -> StepEnded:
    return StepEnded(1, name, f"/p/{name}", end, seconds, **fields)


def test_a_summary_says_how_each_step_ended_and_a_long_one_is_cut_but_for_failures() -> None:
    ends = [
        *(ended(f"c{number}", StepEnd.CACHED) for number in range(4)),
        ended("other", StepEnd.CACHED, differences=("k: 1 -> 2", "j")),
        ended("ran", StepEnd.SUCCEEDED, 1.5, queued_seconds=2.0),
        ended("bad", StepEnd.FAILED, 1.5, error="E: x\ny"),
        ended("after", StepEnd.DEP_FAILED, error="E"),
    ]
    assert [line for _, line in summary_lines(ends)][3:] == [
        "c3     SUCCESS (already done)  /p/c3",
        "other  SUCCESS (already done, made with other k: 1 -> 2; j)  /p/other",
        "ran    SUCCESS (ran 1.50s, queued 2.00s)  /p/ran",
        "bad    FAILED after 1.50s (E: x)  /p/bad",
        "after  DEP_FAILED (not run)  /p/after",
        WHAT_TO_TYPE,
    ]
    assert [(end, line.split(" ")[0]) for end, line in summary_lines(ends, most=4)] == [
        (StepEnd.CACHED, "c0"), (StepEnd.SUCCEEDED, "ran"), (StepEnd.FAILED, "bad"), (StepEnd.DEP_FAILED, "after"),
        (None, "and"),
    ]  # fmt: skip
    assert summary_lines(ends, {StepEnd.LOST: 2}, most=1) == [
        (StepEnd.FAILED, "bad  FAILED after 1.50s (E: x)  /p/bad"),
        (
            None,
            "and 2 more that lost their lease, 1 more that were skipped, 1 more that ran, "
            "5 whose output already existed",
        ),
    ]
    assert summary_lines([]) == []


def test_a_place_that_may_not_be_written_is_named_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    executor = Executor("/sys/marin", f"{tmp_path}/experiments")  # where root may not write either
    with pytest.raises(StepFailed, match=r"/sys/marin\S* cannot be written: .*; give MARIN_PREFIX or --prefix a place"):
        executor.run([ExecutorStep(name="a", fn=print, config=None)])
    assert "Traceback" not in caplog.text
    assert "/.log" not in caplog.text
