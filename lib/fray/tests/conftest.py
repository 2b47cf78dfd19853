from collections.abc import Iterator

import pytest

from fray.backends.local import LocalClient


@pytest.fixture
def client() -> Iterator[LocalClient]:
    client = LocalClient()
    yield client
    client.shutdown(wait=False)
