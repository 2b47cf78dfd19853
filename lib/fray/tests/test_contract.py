"""Our backends keep the contract. One that is not listed yet is tried with `--fray-backend NAME`."""

from fray.testing.contract import *  # noqa: F403

FRAY_BACKENDS = ["local", "local-admission", "local-process"]
