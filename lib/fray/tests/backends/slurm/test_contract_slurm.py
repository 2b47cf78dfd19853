"""The Slurm backend keeps the contract on a real Slurm."""

import pytest

from fray.testing.contract import *  # noqa: F403

FRAY_BACKENDS = [pytest.param("support.slurm.harness:SlurmHarness", id="slurm", marks=pytest.mark.soak)]
