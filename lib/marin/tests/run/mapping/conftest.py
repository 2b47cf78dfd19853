"""A client for the tests of `map_files`."""

from collections.abc import Iterator

import pytest

from fray.backends.local import LocalClient


@pytest.fixture
def threads() -> Iterator[LocalClient]:
    with LocalClient() as client:
        yield client
