"""The page of states is the one that the code would write."""

from pathlib import Path

import pytest

from support.iris.state_table import render

PAGE = Path(__file__).parents[4] / "docs" / "task-states.md"


def test_the_page_is_current():
    if not PAGE.parent.is_dir():
        pytest.skip("not in the repository")
    assert PAGE.read_text() == render(), "run: uv run python -m support.iris.state_table > docs/task-states.md"
