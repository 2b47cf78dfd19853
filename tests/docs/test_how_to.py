"""The pages of docs/how-to: their experiments run, and the commands beside them; cells run in a notebook's kernel."""

import json
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from marin.execution.script.main import parse_command_line
from support.marin.programs import run_program
from tests.docs.blocks import blocks_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(200)]

# Of a command: how it ends, and what it says, where that is more than 0 and anything.
ENDS = {
    "docs/how-to/logs.md": {
        "uv run python experiment.py": (1, "step logs/evaluate failed: ValueError: no checkpoint"),
        "uv run marin logs logs/train": (0, "epoch 1\n"),
        "uv run marin logs logs/train -n 2": (0, "W experiment: the loss does not fall"),
        "uv run marin logs -f logs/evaluate": (8, 'raise ValueError("no checkpoint")'),
        "uv run marin logs logs/train --json": (0, '"status": "SUCCESS"'),
        "uv run marin show logs/evaluate": (0, "FAILED"),
        "uv run marin show experiment": (0, "2: 1 succeeded, 1 failed"),
    },
    "docs/how-to/retries.md": {
        "uv run python experiment.py": (0, "retries/download  SUCCESS"),
        "uv run marin logs retries/download": (
            0,
            "=== failed: ConnectionError: the site hiccups\n=== attempt 2 follows in 0.1 s\n=== attempt 2,",
        ),
    },
}


def environment(folder: Path) -> dict[str, str]:
    own = {name: str(folder / name) for name in ("MARIN_PREFIX", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
    return {**{name: value for name, value in os.environ.items() if name != "FRAY_CLIENT"}, **own}


@pytest.mark.parametrize("page", ENDS)
def test_the_experiment_and_its_commands(page: str, tmp_path: Path) -> None:
    code, commands = (block for block in blocks_of(page) if block.language in ("python", "bash"))
    (tmp_path / "experiment.py").write_text(code.text)
    lines = [line.partition("  #")[0].strip() for line in commands.text.splitlines()]
    assert set(lines) == set(ENDS[page])
    for line in lines:
        ends_with, said = ENDS[page][line]
        done = run_program(line.removeprefix("uv run "), tmp_path, environment(tmp_path), code=ends_with)
        assert said in done.stdout + done.stderr, f"{line}: {done.stdout}{done.stderr}"


def test_the_cells_of_the_notebook_page(tmp_path: Path) -> None:
    cells = [
        nbformat.v4.new_code_cell(block.text)
        for block in blocks_of("docs/how-to/notebooks.md")
        if block.language == "python"
    ]
    assert len(cells) >= 5
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=100, kernel_name="python3", resources=resources).execute(env=environment(tmp_path))
    printed = [output.text for cell in cells for output in cell.outputs if output.output_type == "stream"]
    assert any("counting up to 10" in text for text in printed)
    assert any("1 step(s) failed" in text for text in printed)
    assert any("[notebook/far] in process" in text for text in printed)


def test_the_launch_configuration_is_json_with_options_that_scripts_have() -> None:
    [block] = [block for block in blocks_of("docs/how-to/debugging.md") if block.language == "json"]
    [launch] = json.loads(block.text)["configurations"]
    assert (launch["type"], launch["request"], launch["justMyCode"]) == ("debugpy", "launch", True)
    options = parse_command_line(launch["args"])
    assert options.max_concurrent == 1
