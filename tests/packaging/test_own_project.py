"""docs/own-project.md, done as it is written there, in a folder outside of this repository."""

import pytest

from tests.docs.blocks import FencedBlock, blocks_of
from tests.packaging.user import REPOSITORY, Outsider

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(600)]

PAGE = "docs/own-project.md"


def section(heading: str) -> list[FencedBlock]:
    found = [block for block in blocks_of(PAGE) if block.heading == heading]
    assert found, heading
    return found


def test_the_page_from_its_beginning_to_its_end(outsider: Outsider) -> None:
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
