"""Which tests with a real Ray cluster are in the fast tier."""

import zlib

import pytest

_ONE_OF = 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A third of the contract on Ray is in the fast tier, the same each time; all of it takes six minutes."""
    for item in items:
        if item.path.name == "test_contract_ray.py" and zlib.crc32(item.name.encode()) % _ONE_OF:
            item.add_marker(pytest.mark.slow)
