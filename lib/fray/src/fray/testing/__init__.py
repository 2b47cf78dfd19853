"""Test tools for code that uses fray and for backends: fixtures, the contract of every backend, and harnesses.

`fray.testing.plugin` is a pytest plugin. Put `pytest_plugins = ["fray.testing.plugin"]` into your top conftest.py, or
add `-p fray.testing.plugin` to pytest's options. A test with the fixture `fray_client` then runs on the local backend,
or on others with `--fray-backend local,local-process,iris,ray`.

To check your own backend against the contract, write a `BackendHarness` and a test module of two lines:

    from fray.testing.contract import *
    FRAY_BACKENDS = ["my_package.testing:MyHarness"]

Only the plugin and the contract import pytest.
"""

from fray.testing.fixture import LONG, BackendFixture
from fray.testing.harness import BackendHarness, load_harness
from fray.testing.signals import Flag, eventually

__all__ = ["LONG", "BackendFixture", "BackendHarness", "Flag", "eventually", "load_harness"]
