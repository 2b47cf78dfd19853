"""The hops from docs/architecture.md to the code name files and names that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing" / "hops.md").read_text()
ROWS = [line for line in PAGE.splitlines() if "→" in line]
HOPS = re.findall(r"`((?:rigging|fray|iris|marin)/[\w/]+\.py)` \(([^)]*)\)", PAGE)


def test_every_question_is_three_hops_away_or_fewer() -> None:
    assert len(ROWS) >= 6
    for row in ROWS:
        assert row.count("→") <= 2, row


@pytest.mark.parametrize(("path", "names"), HOPS)
def test_a_hop_leads_to_its_names(path: str, names: str) -> None:
    text = (ROOT / "lib" / path.partition("/")[0] / "src" / path).read_text()
    for name in re.findall(r"`([\w.]+)`", names):
        assert re.search(rf"(def|class) {name.rpartition('.')[2]}\b", text), name


def test_the_hops_begin_at_sections_that_are_there() -> None:
    architecture = (ROOT / "docs" / "architecture.md").read_text()
    for row in ROWS:
        section = re.split(r",| \(", row.split("|")[2].strip())[0]
        assert f"## {section}" in architecture, section
