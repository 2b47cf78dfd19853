"""Fixtures of tests with a real Ray cluster, and which of those tests are in the fast tier."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fray.testing.ray_harness import RayCluster

if TYPE_CHECKING:
    from fray.backends.ray.client import RayClient

_HERE = Path(__file__).parent
_ONE_OF = 8
# Each of their tests starts a cluster or ends one.
_WHOLLY_SLOW = {"jobs/test_gangs.py", "jobs/test_ends.py", "test_session.py", "jobs/test_canceller.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An eighth of the contract on Ray is in the fast tier, the same each time; all of it takes six minutes."""
    for item in items:
        left_out = item.path.name == "test_contract_ray.py" and zlib.crc32(item.name.encode()) % _ONE_OF
        if left_out or (item.path.is_relative_to(_HERE) and item.path.relative_to(_HERE).as_posix() in _WHOLLY_SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """One node, for the tests of a module."""
    with RayCluster(cpus=4).running() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: RayCluster) -> "Iterator[RayClient]":
    from fray.backends.ray.client import RayClient

    with RayClient.connect() as client:
        yield client
