"""docs/own-project.md, done as it is written there, in a folder outside of this repository."""

from pathlib import Path

import pytest

from tests.docs.blocks import FencedBlock, blocks_of
from tests.packaging.user import REPOSITORY, Outsider

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

PAGE = "docs/own-project.md"


def section(heading: str) -> list[FencedBlock]:
    found = [block for block in blocks_of(PAGE) if block.heading == heading]
    assert found, heading
    return found


def make_project(outsider: Outsider) -> Path:
    outsider.environment()  # makes the home directory
    (outsider.root / "home" / "marin").symlink_to(REPOSITORY)
    (set_up,) = section("Set up: three lines")
    assert len(set_up.text.splitlines()) == 3
    outsider.run(set_up.text)
    project = outsider.root / "mypkg"
    *files, add_group = section("An experiment")
    for file in files:
        (project / file.title).write_text(file.text)
    outsider.run(add_group.text, project)
    return project


def test_a_clone_has_all_that_it_needs(outsider: Outsider) -> None:
    for person in ("AUTHOR", "COMMITTER"):
        outsider.extra |= {f"GIT_{person}_NAME": "A", f"GIT_{person}_EMAIL": "a@example.com"}
    project, theirs = make_project(outsider), outsider.root / "theirs"
    (project / "vendor" / "marin-0.0.1-py3-none-any.whl").touch()  # of an older version
    (share,) = section("Share it")
    assert "words/table   SUCCESS (ran" in outsider.run(share.text, project)
    (newer,) = section("A newer version")
    outsider.run(f"{newer.text}\ngit add --all && git commit --quiet -m Newer", project)
    told = outsider.run("git pull --quiet && uv sync --quiet --locked && git status --short && ls vendor", theirs)
    assert [name.partition("-")[0] for name in told.split()] == ["marin", "marin_fray", "marin_iris", "marin_rigging"]


@pytest.mark.soak
def test_the_page_from_its_beginning_to_its_end(outsider: Outsider) -> None:
    project = make_project(outsider)
    run, shown, in_this_process = section("Run it")
    told = outsider.run(run.text, project)
    for line in shown.text.splitlines():
        name, path = line.split()[0], line.split()[-1]
        assert f"{name} " in told
        assert path.replace("/tmp/marin", str(outsider.root / "storage")) in told, path
    table = next((outsider.root / "storage" / "words").glob("table-*/table.txt")).read_text()
    assert [row.split() for row in table.splitlines()[2:]] == [["hamlet", "6"], ["caesar", "7"]]
    jobs = outsider.run("uv run iris job list", project)
    assert sum("words-" in line for line in jobs.splitlines()) == 3, "each step was a child job"
    assert outsider.run(run.text, project).count("already done") >= 3, "nothing runs twice"

    words = project / "src" / "mypkg" / "words.py"
    words.write_text(words.read_text().replace("len(text.split())", "1000 + len(text.split())"))
    outsider.extra["MARIN_PREFIX"] = str(outsider.root / "changed")
    told = outsider.run(in_this_process.text, project)
    table = next((outsider.root / "changed" / "words").glob("table-*/table.txt")).read_text()
    assert "1006" in table, "edited code is what runs"

    (newer,) = section("A newer version")
    outsider.run(newer.text, project)
    assert "already done" in outsider.run(run.text, project)

    (from_checkout,) = section("Without wheels")
    assert "0.1.0" in outsider.run(from_checkout.text)
