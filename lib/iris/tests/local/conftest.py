from pathlib import Path

import pytest

from iris.local.state import LocalPaths
from support.iris.async_tests import pytest_pyfunc_call, runner

__all__ = ["pytest_pyfunc_call", "runner"]


@pytest.fixture
def paths(tmp_path: Path) -> LocalPaths:
    return LocalPaths(tmp_path / "state")
