"""docs/clusters.md: a cluster file that this machine plays, and an older one that is translated."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster, running_cluster
from tests.docs.blocks import REPOSITORY, blocks_of

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(600)]


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
    assert slices[-2:] == ["python", "train.py"]
    trains = [*slices[:-2], "python", "-c", "print('trained')"]
    try:
        told = []
        for words in (start, plain, trains, status):
            done = user.iris(*words, timeout=300)
            assert done.code == 0, done.text
            told.append(done.out)
    finally:
        ended = user.iris(*stop)
    assert "4950" in told[1]
    assert told[2].count("trained") == 2, "v4-16 has two hosts, and each runs the program"
    assert "v4" in told[3]
    assert ended.code == 0, ended.text


def test_an_older_file_is_imported(user: Cluster, tmp_path: Path) -> None:
    command, first, *_, last = shown("Files of the ancestor")
    words = [word.replace("ours.yaml", str(tmp_path / "ours.yaml")) for word in words_of(command)]
    done = user.iris(*words, cwd=REPOSITORY)
    assert done.code == 0, done.text
    assert first in done.text
    assert last in done.text.replace(f"{tmp_path}/", "")
