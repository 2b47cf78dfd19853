import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from rigging.exit_codes import OK
from support.marin.recorded_runs import RecordedStorage, ended, started

pytestmark = pytest.mark.process


@contextmanager
def serving(root: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "XDG_STATE_HOME": str(root / "state"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "marin.cli", "browser", "--prefix", str(root), *words]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _next_line(process: subprocess.Popen[str], mark: str) -> str:
    for line in process.stdout:
        if mark in line:
            return line.strip()
    raise AssertionError(f"it ended without {mark!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_printed_link_leads_to_the_runs_and_signals_stop_it(tmp_path: Path, number: signal.Signals) -> None:
    RecordedStorage(tmp_path).run("mine-111111", [], [started(0), ended()])
    with serving(tmp_path, "--port", "0") as process:
        link = _next_line(process, "/login?token=").rpartition(" ")[2]
        with httpx2.Client() as client:
            assert client.get(link).status_code == 200
            assert "mine-111111" in client.get(httpx2.URL(link).join("/experiments/runs")).text
        process.send_signal(number)
        assert process.wait(30) == OK
    key = tmp_path / "state" / "marin" / "browser-key"
    assert key.stat().st_mode & 0o777 == 0o600
