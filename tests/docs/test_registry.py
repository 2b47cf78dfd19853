"""Every fenced block of the documents is run by a test, or there is a reason why not."""

import re
import subprocess
from functools import cache

import pytest

from tests.docs.blocks import REPOSITORY, blocks_of
from tests.docs.registry import RULES


@cache
def pages() -> list[str]:
    """The Markdown files of the repository, but the changelog and what tests read."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()
    documents = [page for page in listed if page != "CHANGELOG.md" and "/tests/" not in page]
    return sorted(page for page in documents if (REPOSITORY / page).exists())


@pytest.mark.parametrize("page", pages())
def test_every_block_is_run_or_excused_and_no_page_is_too_long(page: str) -> None:
    assert len((REPOSITORY / page).read_text().split()) <= 2500, "split it: one page, one job"
    rules = RULES.get(page, [])
    for block in blocks_of(page):
        where = f"{page}:{block.line} (`{block.first_line}`)"
        assert block.language, f"{where}: say what it is: bash, console, python, yaml, or text"
        assert any(rule.matches(block) for rule in rules), (
            f"{where}: no test runs it; add a rule to tests/docs/registry.py"
        )


def test_every_rule_is_for_a_block_and_names_a_test_that_is_there() -> None:
    for page, rules in RULES.items():
        blocks = blocks_of(page)
        first_of = [next(rule for rule in rules if rule.matches(block)) for block in blocks]
        for rule in rules:
            assert rule in first_of, f"{page}: no block is for {rule}"
            assert bool(rule.run_by) != bool(rule.not_run), f"{page}: {rule}"
            path, _, test = rule.run_by.partition("::")
            if path == ".ci/run":
                script = (REPOSITORY / path).read_text()
                for block, first in zip(blocks, first_of, strict=True):
                    if first is rule:
                        assert re.sub(r"pip install uv( && )?\n?", "", block.text).strip() in script, block
            elif path:
                assert f"def {test}(" in (REPOSITORY / path).read_text(), f"{page}: there is no {rule.run_by}"


def test_few_are_excused() -> None:
    excused = [
        block
        for page, rules in RULES.items()
        for block in blocks_of(page)
        if next(rule for rule in rules if rule.matches(block)).not_run and block.language != "text"
    ]
    assert len(excused) <= 16, excused
