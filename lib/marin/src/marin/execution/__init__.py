"""The executor: a DAG of steps with content-addressed output paths (see `marin.execution.executor`).

Modules here are what experiments import; the folders are how it works.
"""

from marin.execution.executor import *  # noqa: F403 - its names are ours
from marin.execution.executor import __all__ as __all__
