"""A task reads its own log, as its worker's guardian writes it."""

import os
import subprocess
import sys
from pathlib import Path

from iris.cluster.own_log import LOG_VARIABLE, OwnLog, own_log
from iris.rpc.logformat import encode


def test_new_records_are_read_in_order_and_cut_ones_when_they_are_whole(tmp_path: Path) -> None:
    log = OwnLog(str(tmp_path / "log"))
    assert log.read() == []
    first = encode(False, 2**41, b"out") + encode(True, 2**41, b"half", partial=True)
    last = encode(True, 2**41, b" and half") + encode(True, 2**41, b"7 bytes lost", note=True)
    with open(tmp_path / "log", "ab", buffering=0) as file:
        file.write(first + last[:5])
        assert log.read() == [(1, b"out\n"), (2, b"half")]
        assert log.read() == []
        file.write(last[5:])
        assert log.read() == [(2, b" and half\n"), (2, b"iris: 7 bytes lost\n")]
    log.close()
    log.close()


def test_it_is_there_only_where_the_output_goes_to_it(tmp_path: Path) -> None:
    """A child of a task whose output goes elsewhere has the task's variables."""
    assert own_log({LOG_VARIABLE: str(tmp_path / "log"), "IRIS_OUTPUT_PIPES": "0:0,0:1"}) is None
    assert own_log({}) is None
    script = (
        "import os; from iris.cluster.own_log import own_log\n"
        "names = ','.join(f'{s.st_dev}:{s.st_ino}' for s in map(os.fstat, (1, 2)))\n"
        "os.environ['IRIS_OUTPUT_PIPES'] = names\n"
        "print(own_log() is not None)\n"
    )
    environment = {**os.environ, LOG_VARIABLE: str(tmp_path / "log")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
