"""The Ray backend keeps the contract, on a real cluster."""

import pytest

from fray.testing.contract import *  # noqa: F403

# The conftest.py gives most of these pytest.mark.soak as well.
FRAY_BACKENDS = ["ray"]
pytestmark = [pytest.mark.ray, pytest.mark.process]
