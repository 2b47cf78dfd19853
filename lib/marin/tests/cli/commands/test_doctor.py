"""`marin doctor`: each fact has its verdict and a remedy; one failure decides the exit code."""

import dataclasses
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from marin.cli.deciding.storage_health import PrefixFacts, judge_client, judge_prefix
from marin.cli.main import run
from marin.cli.reading.storage_health import look_at_prefix
from rigging.cli.doctor import MachineFacts, judge, judge_clock

GOOD = MachineFacts(
    python=(3, 12, 1),
    programs={"uv": "uv 0.9", "git": "git version 2"},
    versions={"marin": "0.1.0", "marin-fray": "0.1.0"},
    disks={"storage": ("/data", 100 << 30)},
    cpu_millis=None,
    memory_bytes=None,
    unified_groups=True,
    loopback="",
)


@pytest.mark.parametrize(
    ("change", "verdict", "remedy"),
    [
        ({}, [], ""),
        ({"python": (3, 10, 2)}, ["fail python"], "uv python install"),
        ({"programs": {"uv": None, "git": None}}, ["fail uv", "warn git"], "pip install uv"),
        ({"uv_off_path": "/venv/bin/uv"}, ["warn uv"], 'export PATH="/venv/bin:$PATH"'),
        ({"versions": {"marin": "0.1.0", "marin-iris": "0.2.0"}}, ["fail versions"], "one release"),
        ({"disks": {"storage": ("/data", 2 << 30)}}, ["warn storage"], ""),
        ({"disks": {"storage": ("/data", 1 << 20)}}, ["fail storage"], "free space"),
        ({"memory_bytes": 200 << 20}, ["warn limits"], "more memory"),
        ({"unified_groups": False}, ["warn limits"], "version 2"),
        ({"loopback": "cannot open a port of 127.0.0.1: denied"}, ["fail ports"], "127.0.0.1"),
    ],
)
def test_a_machine(change: dict[str, Any], verdict: list[str], remedy: str) -> None:
    findings = [finding for finding in judge(dataclasses.replace(GOOD, **change)) if finding.state != "ok"]
    assert [f"{finding.state} {finding.subject}" for finding in findings] == verdict
    assert remedy in " ".join(finding.remedy for finding in findings)


@pytest.mark.parametrize(
    ("facts", "verdict", "remedy"),
    [
        (PrefixFacts("gs://b", False, "us-a", "us-a", 0.2), ["ok prefix", "ok region"], ""),
        (PrefixFacts("/tmp/marin", True, None, None, 0.01), ["warn prefix"], "MARIN_PREFIX"),
        (PrefixFacts("gs://b", False, "us-a", "eu-b", 9.0), ["warn prefix", "warn region"], "bucket in eu-b"),
        (PrefixFacts("s3://b", False, None, None, error="no credentials"), ["fail prefix"], "AWS_ACCESS_KEY_ID"),
        (PrefixFacts("/root/x", False, None, None, error="denied"), ["fail prefix"], "may write"),
        (PrefixFacts("s3://b", False, None, None, error="no s3fs", remedy="add it"), ["fail prefix"], "add it"),
    ],
)
def test_a_prefix(facts: PrefixFacts, verdict: list[str], remedy: str) -> None:
    findings = judge_prefix(facts)
    assert [f"{finding.state} {finding.subject}" for finding in findings] == verdict
    assert remedy in " ".join(finding.remedy for finding in findings)


def test_a_client_and_a_clock() -> None:
    known = ["local", "ray", "ray://host:port"]
    assert judge_client("", known, None).state == "ok"
    assert judge_client("ray://x:1", known, "ray is not installed: uv add it").remedy == "uv add it"
    assert "one of local" in judge_client("sky", known, None).remedy
    assert [judge_clock(skew, "the controller's").state for skew in (300, -300, 9000, -9000)] == ["ok"] * 2 + [
        "warn"
    ] * 2
    assert "9.0 s behind" in judge_clock(9000, "the controller's").text


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_command_leaves_nothing_at_the_prefix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FRAY_CLIENT", raising=False)
    assert run(["doctor", "--prefix", str(tmp_path), "--json"]) == 0
    found = {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert found["prefix"]["state"] == "ok"
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patch:
        patch.setattr("marin.cli.reading.storage_health.open_url", full)
        assert run(["doctor", "--prefix", str(tmp_path)]) == 1
    assert f"the disk of {tmp_path} is full" in (told := capsys.readouterr().out)
    assert "-> free space there, or choose another place" in told
    (tmp_path / "file").write_text("")
    assert run(["doctor", "--prefix", str(tmp_path / "file" / "below")]) == 1
    assert "-> give MARIN_PREFIX a place" in capsys.readouterr().out
    assert run(["doctor", "--prefix", "htp://x"]) == 1
    assert "htp:// URLs" in capsys.readouterr().out


def test_storage_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr("marin.cli.reading.storage_health.open_url", lambda *_: answers.wait())
    assert look_at_prefix("s3://b", False, within_s=0.01).error == "no answer within 0.01 s"
    answers.set()
