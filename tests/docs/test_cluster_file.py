"""docs/clusters.md: a cluster file that this machine plays, and an older one that is translated."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY, blocks_of
from tests.e2e.conftest import Cluster, running_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as started:
        yield started


def shown(heading: str) -> list[str]:
    (block,) = [block for block in blocks_of("docs/clusters.md") if block.heading == heading]
    return block.text.splitlines()


def words_of(line: str) -> list[str]:
    return shlex.split(line.removeprefix("$ uv run iris "))


def test_a_cluster_file_on_this_machine(user: Cluster) -> None:
    start, plain, slices, status, stop = map(words_of, shown("A cluster file on your machine"))
    try:
        begun = user.iris(*start, timeout=120)
        assert begun.code == 0, begun.text
        done = user.iris(*plain, timeout=300)
        assert done.code == 0, done.text
        assert "4950" in done.out
        assert slices[-2:] == ["python", "train.py"]
        done = user.iris(*slices[:-2], "python", "-c", "print('trained')", timeout=300)
        assert done.code == 0, done.text
        assert done.out.count("trained") == 2, "v4-16 has two hosts, and each runs the program"
        told = user.iris(*status)
        assert told.code == 0, told.text
        assert "v4" in told.out
    finally:
        ended = user.iris(*stop)
    assert ended.code == 0, ended.text


def test_an_older_file_is_imported(user: Cluster, tmp_path: Path) -> None:
    command, first, *_, last = shown("Files of the ancestor")
    words = [word.replace("ours.yaml", str(tmp_path / "ours.yaml")) for word in words_of(command)]
    done = user.iris(*words, cwd=REPOSITORY)
    assert done.code == 0, done.text
    assert first in done.text
    assert last in done.text.replace(f"{tmp_path}/", "")
