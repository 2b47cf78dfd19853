"""What the code of a job can read of its own output."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import pytest

from fray.backends.local import LocalClient
from fray.output.own_output import OutputInFile, output_in, own_output
from fray.types import Entrypoint, JobRequest
from rigging.errors import InvalidRequest


def read_own() -> Sequence[tuple[int, bytes]]:
    print("printed", flush=True)
    subprocess.run(["/bin/echo", "by a program"], check=True)
    os.write(2, b"to stderr\n")
    output = own_output()
    assert output is not None
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its stdout goes elsewhere from here on
    pieces = list(output.read())
    os.write(2, b"more\n")
    pieces += output.read()
    output.close()
    return pieces


@pytest.mark.process
def test_a_job_reads_what_it_has_written_and_its_programs() -> None:
    with LocalClient(processes=True) as client:
        job = client.submit(JobRequest("own", Entrypoint.from_callable(read_own)))
        pieces = job.result()
        assert b"".join(data for _, data in pieces) == b"printed\nby a program\nto stderr\nmore\n"
        assert job.logs() == "printed\nby a program\nto stderr\nmore\n"


def test_a_terminal_or_a_file_of_somebodys_is_no_jobs_output() -> None:
    with tempfile.NamedTemporaryFile() as named, pytest.raises(InvalidRequest, match="unnamed"):
        output_in(named.fileno())
    with pytest.raises(InvalidRequest):
        output_in(10**6)
    with tempfile.TemporaryFile() as unnamed:
        unnamed.write(b"said")
        unnamed.flush()
        output = output_in(unnamed.fileno())
        assert isinstance(output, OutputInFile)
        assert output.read() == [(0, b"said")]
        assert output.read() == []
