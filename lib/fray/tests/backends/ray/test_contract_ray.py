"""The Ray backend keeps the contract, on a real cluster."""

import pytest

from fray.testing.contract import *  # noqa: F403

FRAY_BACKENDS = ["ray"]
pytestmark = [pytest.mark.ray, pytest.mark.e2e]
