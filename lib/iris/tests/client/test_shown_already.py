"""A job's own output is where its child jobs' lines are shown already; a file or a pipe of its own is not."""

import io
import os

from iris.client.job_env import shown_already
from iris.client.logs.printer import LogPrinter
from iris.client.types import LogLine
from iris.cluster.own_log import OUTPUT_PIPES_VARIABLE, pipe_name

INSIDE = {"IRIS_JOB_ID": "/ann/up", "IRIS_CONTROLLER_ADDRESS": "127.0.0.1:1"}


def inside(out: int, err: int) -> dict[str, str]:
    return {**INSIDE, OUTPUT_PIPES_VARIABLE: f"{pipe_name(out)},{pipe_name(err)}"}


def test_on_the_output_of_the_job_itself_nothing_of_its_child_is_printed_and_elsewhere_it_is() -> None:
    assert shown_already("/ann/up/child", inside(1, 2)) == {False, True}
    reader, writer = os.pipe()
    try:
        if pipe_name(1) != pipe_name(2):
            assert shown_already("/ann/up/child", inside(writer, 2)) == {True}
        assert shown_already("/ann/up/child", inside(writer, writer)) == frozenset()
    finally:
        os.close(reader)
        os.close(writer)
    for environ in (INSIDE, {}, {**inside(1, 2), "IRIS_EXTRAS": "no json"}):
        assert shown_already("/ann/up/child", environ) == frozenset()
    for other in ("/ann/other", "/ann/upper/child"):
        assert shown_already(other, inside(1, 2)) == frozenset()


def test_a_closed_stream_has_no_name() -> None:
    assert pipe_name(9999) == "-"


def test_a_silent_stream_gets_nothing() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    printer = LogPrinter("/ann/up/child", prefix_own=False, out=out, err=err, silent={False})
    printer.write(LogLine("/ann/up/child/0", 0, False, 0, b"out"))
    printer.write(LogLine("/ann/up/child/0", 0, True, 0, b"err"))
    printer.finish()
    assert (out.getvalue(), err.getvalue()) == (b"", b"err\n")
