"""The commands of docs/migrating.md run."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from marin.migrate.check import check_file
from support.marin.programs import run_program

REPOSITORY = Path(__file__).resolve().parents[4]
PAGE = (REPOSITORY / "docs" / "migrating.md").read_text()


@pytest.mark.process
def test_the_commands_run(tmp_path: Path) -> None:
    commands = re.findall(r"^ *\$ uv run python (.*)$", PAGE, re.MULTILINE)
    assert [command.split()[2] for command in commands] == ["check", "paths"]
    for command in commands:
        words = shlex.split(command.replace("gs://marin-us-central2", str(tmp_path / "bucket")))
        # The examples need packages of their own.
        chosen = ["experiments/tutorials" if word == "experiments" else word for word in words]
        run_program([sys.executable, *chosen], REPOSITORY)
    assert not (tmp_path / "bucket").exists()


def test_the_lines_shown_are_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from marin.execution import ExecutorStep, versioned\n\n\nimport levanter\nfrom fray.v2 import x\n"
        + "\n" * 15
        + 'a = versioned({"b", "a"})\n\n\n\nExecutorStep("a", None, a, max_retries=3)\n'
    )
    shown = [line.strip() for line in PAGE.splitlines() if line.strip().startswith("train.py:")]
    told = [str(finding).removeprefix(f"{tmp_path}/") for finding in check_file(script)]
    assert len(shown) == 4
    for line in shown:
        assert any(found.startswith(line.removesuffix(" ...").rstrip(",")) for found in told), (line, told)
