import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from iris import __version__
from iris.cli.doctor import judge_cluster
from iris.cli.main import run
from iris.client.types import ClusterStatus, WorkerStatus

WORKER = WorkerStatus("w", True, 4.0, 1 << 30, 1 << 30, "", 0.0, 0, 0)
GOOD = ClusterStatus(__version__, 1, 1, "/state", 0, 0.0, 0, 0, workers=(WORKER,))


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, ["ok cluster", "ok workers"]),
        ({"version": "9.9"}, ["ok cluster", "warn release", "ok workers"]),
        ({"workers": ()}, ["ok cluster", "fail workers"]),
        ({"workers": (dataclasses.replace(WORKER, connected=False),)}, ["ok cluster", "fail workers"]),
        ({"disk_warning": "the disk is nearly full"}, ["ok cluster", "ok workers", "warn controller"]),
    ],
)
def test_a_cluster_that_answers(change: dict[str, Any], verdict: list[str]) -> None:
    findings = judge_cluster(dataclasses.replace(GOOD, **change), "127.0.0.1:1")
    assert [f"{finding.state} {finding.subject}" for finding in findings] == verdict


def test_nothing_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    assert run(["doctor"]) == 0
    assert "is not running; the next job starts it" in capsys.readouterr().out
    assert not (tmp_path / "state").exists()

    def refuse(path: Path, _what: str) -> None:
        raise PermissionError(13, os.strerror(13), path)

    monkeypatch.setattr("iris.local.state.read_private", refuse)
    assert run(["doctor"]) == 1
    assert "-> set IRIS_STATE_DIR to a directory of your own" in capsys.readouterr().out


@pytest.mark.process  # it tries for ten seconds
def test_what_does_not_answer_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--controller-url", "127.0.0.1:9", "doctor", "--json"]) == 1
    (cluster,) = [item for item in json.loads(capsys.readouterr().out) if item["subject"] == "cluster"]
    assert cluster["state"] == "fail"
    assert "127.0.0.1:9" in cluster["text"]
