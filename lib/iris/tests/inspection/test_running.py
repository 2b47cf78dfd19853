"""The process that looks at others."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from iris.inspection.running import Inspection, inspect
from rigging.errors import InvalidRequest


def test_it_has_none_of_the_workers_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nenv\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setenv("CLOUD_KEY", "hunter2")

    async def look() -> bytes:
        return b"".join([piece async for piece in inspect(Inspection("status", 1), os.getpid())])

    told = asyncio.run(look()).decode()
    assert f"PATH={os.environ['PATH']}" in told
    assert "hunter2" not in told


def test_a_task_cannot_name_a_file_of_the_host_as_its_log() -> None:
    async def look() -> None:
        await anext(inspect(Inspection("logs", 1), os.getpid(), "/ann/a/0:0"))

    with pytest.raises(InvalidRequest, match="iris job logs"):
        asyncio.run(look())
