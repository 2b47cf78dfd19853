"""Fixtures for tests with a real Ray cluster, and the selection of contract tests for the soak tier."""

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fray.testing.ray_harness import RayCluster

if TYPE_CHECKING:
    from fray.backends.ray.client import RayClient

_ONE_OF = 8


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a fixed eighth of the contract on Ray in the process tier; the whole contract takes six minutes."""
    for item in items:
        if item.path.name == "test_contract_ray.py" and zlib.crc32(item.name.encode()) % _ONE_OF:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A cluster of one node, for the tests of a module."""
    with RayCluster(cpus=4).running() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: RayCluster) -> "Iterator[RayClient]":
    from fray.backends.ray.client import RayClient

    with RayClient.connect() as client:
        yield client
