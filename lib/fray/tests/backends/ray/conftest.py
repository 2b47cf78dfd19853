"""Which tests with a real Ray cluster are in the fast tier."""

import zlib
from pathlib import Path

import pytest

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
