"""The pages on conventions, storage and resources: their programs and commands."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster, running_cluster
from support.marin.programs import run_program
from tests.docs.blocks import REPOSITORY, FencedBlock, blocks_of
from tests.docs.command_lines import command_lines

pytestmark = pytest.mark.process


def of_language(page: str, language: str) -> list[FencedBlock]:
    found = [block for block in blocks_of(page) if block.language == language]
    assert found, (page, language)
    return found


def program(page: str) -> str:
    return "\n\n".join(block.text for block in of_language(page, "python"))


PROGRAMS = ["docs/storage.md", "docs/resources.md", "docs/cheat-sheet.md", "docs/how-to/moving-from.md"]


@pytest.mark.parametrize("page", PROGRAMS)
def test_python_of_a_page_is_one_program(page: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(program(page))
    env = {**os.environ, "MARIN_PREFIX": str(tmp_path / "prefix")}
    told = run_program([sys.executable, str(script)], env=env).stdout
    for said in re.findall(r"print\(error\)  # (.*?)\.\.\.", program(page)):
        assert said in told


def test_rules_of_a_bucket_are_for_lifetimes_that_there_are() -> None:
    from rigging.filesystem.prefix import ALLOWED_TTL_DAYS

    (shown,) = of_language("docs/storage.md", "json")
    for rule in json.loads(shown.text)["rule"]:
        days = rule["condition"]["age"]
        assert days in ALLOWED_TTL_DAYS
        assert rule["condition"]["matchesPrefix"] == [f"tmp/ttl={days}d/"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as started:
        yield started


def run(cluster: Cluster, line: str, cwd: Path) -> str:
    """Run a line of a page as it is, but for `uv run`: this environment stands for the reader's."""
    done = run_program(re.sub(r"\buv run ", "", line), cwd, cluster.environment(), seconds=200)
    return done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_experiment_of_the_conventions(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    first, *_ = of_language("docs/experiments.md", "python")
    module = folder / first.title
    module.parent.mkdir(parents=True)
    module.write_text(program("docs/experiments.md"))
    lines = [line for block in of_language("docs/experiments.md", "bash") for line in block.text.splitlines()]
    told = [run(cluster, line, folder) for line in lines]
    assert len(told) == 5
    assert "word_counts/share-5" in told[0]
    (artifact,) = cluster.storage.glob("word_counts/share-??????/.artifact")
    shares = json.loads(artifact.read_text())
    assert shares == {"9": pytest.approx(6 / 9), "4": 1.0}
    assert "0 done, 2 cached" in told[3], "share-5 and what it needs, and no more"
    assert "word_counts/share" in told[4]
    linted = run(cluster, "marin lint experiments/word_counts.py || test $? -eq 8", folder)
    assert linted.count("log_every") == 3
    assert "3 finding(s)" in linted, "and nothing else"


@pytest.mark.soak
def test_a_prefix_of_the_own(cluster: Cluster) -> None:
    (shown,) = [block for block in of_language("docs/storage.md", "bash") if "export MARIN_PREFIX" in block.text]
    told = run(cluster, shown.text, REPOSITORY)
    assert "4950" in told
    assert (cluster.home / "marin" / "hello_world").is_dir()


@pytest.mark.soak
def test_bands_and_budgets(cluster: Cluster) -> None:
    band, budgets = (block for block in of_language("docs/resources.md", "bash") if block.heading == "Who goes first")
    for line in [*command_lines(band.text), *command_lines(budgets.text)]:
        run(cluster, line, REPOSITORY)
    assert "ann" in cluster.iris("user", "budget", "list").out
    assert "batch" in cluster.iris("query", "SELECT * FROM jobs", "-f", "json").out
