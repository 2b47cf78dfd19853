"""The wheels, built once for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.user import Outsider, build_wheels


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture
def outsider(tmp_path: Path) -> Iterator[Outsider]:
    user = Outsider(tmp_path)
    try:
        yield user
    finally:
        for iris in sorted(tmp_path.glob("**/.venv/bin/iris")):
            user.run([str(iris), "cluster", "stop", "--force"])
