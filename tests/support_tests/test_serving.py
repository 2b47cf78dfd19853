"""A test server ends with its test."""

from pathlib import Path

import psutil
import pytest

from support.rigging.serving import TestServer


def test_a_server_that_does_not_end_by_itself_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deaf_server.py").write_text(
        "import os, threading\nprint('127.0.0.1:%d' % os.getpid(), flush=True)\nthreading.Event().wait()\n"
    )
    monkeypatch.chdir(tmp_path)
    server = TestServer("deaf_server")
    pid = int(server.url.rpartition(":")[2])
    server.stop(patience_s=0.01)
    server.stop(patience_s=0.01)
    assert not psutil.pid_exists(pid)
