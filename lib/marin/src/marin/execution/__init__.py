"""The executor: a DAG of steps with content-addressed output paths (see `marin.execution.executor`).

Experiments import the modules in this folder. The subfolders are the implementation.
"""

from marin.execution.executor import *  # noqa: F403 - its names are ours
from marin.execution.executor import __all__ as __all__
