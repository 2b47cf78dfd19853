"""The examples: each page's commands print what the page shows, with no packages but those that the page names."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.iris.embedded_cluster import INSIDE_A_JOB
from support.marin.programs import run_program
from tests.docs.blocks import REPOSITORY
from tests.docs.transcripts import Command, actions, first_missing

PAGES = sorted(page.stem for page in (REPOSITORY / "docs" / "examples").glob("*.md") if page.stem != "index")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Storage and a local cluster of the test's own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(INSIDE_A_JOB)}
    inherited |= {"MARIN_PREFIX": str(tmp_path / "marin"), "IRIS_STATE_DIR": str(tmp_path / "iris")}
    yield inherited
    if (tmp_path / "iris").exists():
        run_program("iris cluster stop --force", REPOSITORY, inherited)


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", PAGES)
def test_the_commands_print_what_the_page_shows(name: str, environment: Mapping[str, str], tmp_path: Path) -> None:
    commands = [action for action in actions(f"docs/examples/{name}.md") if isinstance(action, Command)]
    assert any(
        f"experiments.examples.{name}" in command.text or f"{name}.ipynb" in command.text for command in commands
    )
    for command in commands:
        text = command.text.replace("/tmp/marin", str(tmp_path / "marin"))
        text = text.replace("uv run ", "uv run --isolated --frozen ")
        done = run_program(f"{{ {text}; }} 2>&1", REPOSITORY, environment, seconds=300)
        said = done.stdout.replace(str(tmp_path / "marin"), "/tmp/marin")
        assert first_missing(command.shown, said) is None, f"{command.text}:\n{said}"


# Tests of their folders run these (`tests/docs/test_tutorials.py`, `test_how_to.py`).
ELSEWHERE = {name: f"tutorials/{name}" for name in ("sweep", "mirrored_inputs")} | {"notebook": "how-to/notebooks"}


@pytest.mark.parametrize(("name", "page"), [*((name, f"examples/{name}") for name in PAGES), *ELSEWHERE.items()])
def test_every_page_shows_its_picture_and_is_in_the_list(name: str, page: str) -> None:
    docs = REPOSITORY / "docs"
    (picture,) = (docs / "images" / "examples").glob(f"{name}.*")
    assert f"(../images/examples/{picture.name})" in (docs / f"{page}.md").read_text(encoding="utf-8")
    in_list = f"../{page}.md" if name in ELSEWHERE else f"{name}.md"
    assert f"({in_list})" in (docs / "examples" / "index.md").read_text(encoding="utf-8")
