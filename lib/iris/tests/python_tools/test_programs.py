"""Pythons of a machine are found by their names, and one is taken only when it runs and is what was asked for."""

import os
import sys
from pathlib import Path

import pytest

from iris.python_tools.programs import find_python, python_programs


def program(path: Path, says: str = "", status: int = 0) -> str:
    """A Python that says of its version whatever it is told to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a version manager keeps the installation of this process."""
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "versions/3.11.7"))
    return tmp_path / "versions"


def test_those_of_the_path_come_first_then_those_beside_this_one_newest_first(tmp_path: Path, versions: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    expected = [
        program(a / "python3.11"), program(b / "python3.13"), program(b / "python3.12"),
        program(versions / "3.13.2/bin/python3.13"), program(versions / "3.12.1/bin/python3.12"),
    ]  # fmt: skip
    for name in ("python3", "python", "python3.12-config", "xpython3.12"):
        program(b / name)
    path = os.pathsep.join([str(a), str(tmp_path / "none"), str(b), str(a)])
    assert python_programs(">=3.11", path) == expected
    assert python_programs("", path) == expected
    for request in ("3.12", "3.12.1"):
        assert python_programs(request, path) == [expected[2], expected[4]], "what cannot be meant is not tried"
    assert python_programs("3.9", path) == []


def test_the_first_that_runs_and_fits_is_taken(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    program(a / "python3.14", "3.14.0", status=1)
    (a / "python3.13").write_text("not to be run")
    program(a / "python3.12", "3.11.9")  # a shim that leads elsewhere
    right = program(b / "python3.13", "3.13.1")
    program(b / "python3.12", "3.12.5")
    path = f"{a}{os.pathsep}{b}"
    assert find_python(">=3.12", path) == right
    assert find_python("3.12", path) == f"{b}/python3.12"
    assert find_python(">=3.14", path) == ""
