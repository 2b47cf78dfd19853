"""Commands in the documents, in blocks and in running text, are commands of the programs."""

import re
import shlex

import pytest

from tests.docs.blocks import REPOSITORY, blocks_of
from tests.docs.command_lines import check_line, command_lines, inline_commands
from tests.docs.test_registry import pages

# Each row is a call of older programs, and names the test that makes it.
OTHER_FORMS = ("docs/compatibility.md",)


@pytest.mark.parametrize("page", [page for page in pages() if page not in OTHER_FORMS])
def test_commands_and_options_are_those_of_the_programs(page: str) -> None:
    shell = [block for block in blocks_of(page) if block.language in ("bash", "console")]
    lines = [line for block in shell for line in command_lines(block.text)]
    lines += inline_commands((REPOSITORY / page).read_text())
    wrong = [str(found) for line in lines for found in check_line(line)]
    assert not wrong, f"{page}:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("iris job run --no-such-option -- true", "no option --no-such-option"),
        ("iris jobs list", "no command 'jobs'"),
        ("uv run marin gc --remove", "no option --remove"),
        ("iris cluster worker cordon|dismiss WORKER", "no command 'dismiss'"),
        ("iris user budget get USER | list [--jason]", "no option --jason"),
    ],
)
def test_a_wrong_command_is_found(line: str, why: str) -> None:
    (found,) = check_line(line)
    assert why in str(found)


def test_what_comes_after_the_dashes_is_no_option_of_ours() -> None:
    assert check_line("$ uv run iris --cluster=x job run -e KEY VALUE --cpu 2 -- python train.py --lr 3") == []


def test_paths_of_tests_are_there() -> None:
    checked = 0
    for page in pages():
        for line in re.findall(
            r"^(?:\w+=\S+ )*uv run --group dev pytest (.*)$", (REPOSITORY / page).read_text(), re.MULTILINE
        ):
            for word in shlex.split(line, comments=True):
                if "/" in word:
                    assert (REPOSITORY / word.partition("::")[0]).exists(), f"{page}: {word}"
                    checked += 1
    assert checked >= 4
