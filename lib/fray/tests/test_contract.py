"""Our backends keep the contract; `ray/` has Ray's, which needs a process namespace."""

import pytest

from fray.testing.contract import *  # noqa: F403

# The conftest.py gives half of those on Iris pytest.mark.soak as well.
_PROCESS = [pytest.param(name, marks=pytest.mark.process) for name in ("local-process", "iris")]
FRAY_BACKENDS = ["local", "local-admission", *_PROCESS]
