"""For tests of code that uses fray, and of backends: fixtures, the contract every backend keeps, and harnesses.

`fray.testing.plugin` is a pytest plugin; put `pytest_plugins = ["fray.testing.plugin"]` into your top conftest.py, or
`-p fray.testing.plugin` into pytest's options. Then a test that takes `fray_client` runs on the local backend, and on
others with `--fray-backend local,local-process,iris,ray`.

To hold a backend of your own to the contract, write a `BackendHarness` and a test module of two lines:

    from fray.testing.contract import *
    FRAY_BACKENDS = ["my_package.testing:MyHarness"]

Nothing here imports pytest except the plugin and the contract.
"""

from fray.testing.fixture import LONG, BackendFixture
from fray.testing.harness import BackendHarness, load_harness
from fray.testing.signals import Flag, eventually

__all__ = ["LONG", "BackendFixture", "BackendHarness", "Flag", "eventually", "load_harness"]
