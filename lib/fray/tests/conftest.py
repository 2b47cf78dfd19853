import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.backends.local import LocalClient

_ONE_OF = 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move a fixed half of the contract on Iris to the soak tier, because each actor there is a process."""
    for item in items:
        is_on_iris = "[iris" in item.name and item.path == Path(__file__).with_name("test_contract.py")
        if is_on_iris and zlib.crc32(item.name.encode()) % _ONE_OF:
            item.add_marker(pytest.mark.soak)


@pytest.fixture
def client() -> Iterator[LocalClient]:
    client = LocalClient()
    yield client
    client.shutdown(wait=False)
