"""Import the quickstart's own modules for tests in this process."""

import importlib.util
import sys
from pathlib import Path

_EXPERIMENTS = Path(__file__).parents[2] / "experiments"

# Not by way of sys.path: with the repository's root in it, this process could import what jobs' processes cannot.
if "experiments" not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        "experiments", _EXPERIMENTS / "__init__.py", submodule_search_locations=[str(_EXPERIMENTS)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["experiments"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["experiments"])
