"""A job's own output is where its child jobs' lines are shown already; a file or a pipe of its own is not."""

import os

import pytest

from iris.client.logs.own_output import OUTPUT_PIPES_VARIABLE, pipe_name, shown_already
from iris.client.logs.printer import LogPrinter
from iris.client.types import LogLine

INSIDE = {"IRIS_JOB_ID": "/ann/up", "IRIS_CONTROLLER_ADDRESS": "127.0.0.1:1"}


def inside(out: int, err: int) -> dict[str, str]:
    return {**INSIDE, OUTPUT_PIPES_VARIABLE: f"{pipe_name(out)},{pipe_name(err)}"}


def test_on_the_output_of_the_job_itself_nothing_of_its_child_is_printed() -> None:
    assert shown_already("/ann/up/child", inside(1, 2)) == {False, True}


def test_what_is_redirected_is_printed() -> None:
    reader, writer = os.pipe()
    try:
        if pipe_name(1) != pipe_name(2):
            assert shown_already("/ann/up/child", inside(writer, 2)) == {True}
        assert shown_already("/ann/up/child", inside(writer, writer)) == frozenset()
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize(
    ("job_id", "environ"),
    [
        ("/ann/other", inside(1, 2)),
        ("/ann/upper/child", inside(1, 2)),
        ("/ann/up/child", INSIDE),
        ("/ann/up/child", {}),
        ("/ann/up/child", {**inside(1, 2), "IRIS_EXTRAS": "no json"}),
    ],
)
def test_other_jobs_and_other_places_are_printed(job_id: str, environ: dict[str, str]) -> None:
    assert shown_already(job_id, environ) == frozenset()


def test_a_closed_stream_has_no_name() -> None:
    assert pipe_name(9999) == "-"


def test_a_silent_stream_gets_nothing(tmp_path) -> None:
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        printer = LogPrinter("/ann/up/child", prefix_own=False, out=out, err=err, silent={False})
        printer.write(LogLine("/ann/up/child/0", 0, False, 0, b"out"))
        printer.write(LogLine("/ann/up/child/0", 0, True, 0, b"err"))
        printer.finish()
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()) == (b"", b"err\n")
