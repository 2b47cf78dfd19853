"""The tutorials: their scripts run everywhere, and their pages' commands print what the pages show."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.iris.embedded_cluster import INSIDE_A_JOB, Cluster, running_cluster
from support.marin.programs import run_program
from tests.docs.blocks import REPOSITORY, blocks_of
from tests.docs.transcripts import first_missing, walk

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

TUTORIALS = ("executor_101", "sweep", "retries_and_failures", "mirrored_inputs", "cpu_gang")
# Pages that are cheap without their jobs.
EACH_TIME = ("executor_101", "retries_and_failures")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the experiments, which a reader may edit."""
    place = tmp_path / "checkout"
    shutil.copytree(REPOSITORY / "experiments", place / "experiments")
    return place


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(INSIDE_A_JOB)}


def walk_here(name: str, folder: Path, jobs: bool, env: dict[str, str], prefix: Path) -> int:
    page, script = f"docs/tutorials/{name}.md", folder / "experiments" / "tutorials" / f"{name}.py"
    return walk(page, script, prefix, env, jobs)


@pytest.mark.parametrize("name", EACH_TIME)
def test_pages_without_their_jobs(name: str, folder: Path, tmp_path: Path) -> None:
    assert walk_here(name, folder, jobs=False, env=environment(), prefix=tmp_path / "marin") >= 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "cluster") as started:
        yield started


@pytest.mark.soak
@pytest.mark.parametrize("name", TUTORIALS)
def test_pages_on_a_cluster(name: str, cluster: Cluster, folder: Path) -> None:
    assert walk_here(name, folder, jobs=True, env=cluster.environment(), prefix=cluster.storage) >= 5


RESULTS = {
    "mirrored_inputs": "copied from elsewhere: 3,000,000 bytes",
    "cpu_gang": "y = 3.00 x + 2.00",
    "sweep": "best of 9: lr=0.5-momentum=0.0, loss 0",
}


@pytest.mark.parametrize("backend", ["local", "local://?processes=1"])
@pytest.mark.parametrize("name", RESULTS)
def test_scripts_on_local_backends(name: str, backend: str, tmp_path: Path) -> None:
    env = {**environment(), "MARIN_PREFIX": str(tmp_path / "marin"), "FRAY_CLIENT": backend}
    done = run_program([sys.executable, "-m", f"experiments.tutorials.{name}"], REPOSITORY, env)
    assert done.stdout.splitlines()[-1] == RESULTS[name]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", TUTORIALS)
def test_code_on_a_page_is_the_script_s(name: str) -> None:
    script = (REPOSITORY / "experiments" / "tutorials" / f"{name}.py").read_text(encoding="utf-8")
    for block in blocks_of(f"docs/tutorials/{name}.md"):
        if block.language == "python":
            as_there = [textwrap.indent(block.text, " " * depth) for depth in (0, 4, 8)]
            assert any(text in script for text in as_there), f"{block.page}:{block.line}"


def test_a_shown_line_has_to_be_there_and_in_order() -> None:
    said = "step a: SUCCESS (ran 0.31s)\nstep b: SUCCESS (ran 12.00s)\n"
    assert first_missing(["step a: SUCCESS (ran 0.20s)", "step b: SUCCESS (ran 0.01s)"], said) is None
    assert first_missing(["step b: SUCCESS (ran 0.01s)", "step a: SUCCESS (ran 0.20s)"], said) is not None
    assert first_missing(["step a: FAILED"], said) == "step a: FAILED"
