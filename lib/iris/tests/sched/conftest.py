import pytest

from iris.sched.testing import InMemoryCluster


@pytest.fixture
def cluster() -> InMemoryCluster:
    """A cluster without workers."""
    return InMemoryCluster()
