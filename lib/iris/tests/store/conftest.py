import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.store.db import migrate_to, migrations
from support.iris.async_tests import pytest_pyfunc_call, runner

__all__ = ["pytest_pyfunc_call", "runner"]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(tmp_path / "db", isolation_level=None)
    migrate_to(made, migrations()[-1][0])
    yield made
    made.close()
