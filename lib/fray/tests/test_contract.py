"""Our backends keep the contract; `ray/` has Ray's, which needs a process namespace."""

import pytest

from fray.testing.contract import *  # noqa: F403

FRAY_BACKENDS = ["local", "local-admission", "local-process", pytest.param("iris", marks=pytest.mark.e2e)]
