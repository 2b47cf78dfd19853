"""A small data library, as users of older releases have one: lazy datasets, run by actors or by a pool of workers.

It stands in for theirs in the tests, and calls only what docs/compatibility.md and the public API name.
"""

from data_library.dataset import Dataset
from data_library.executor import Executor, PipelineFailed, Progress
from data_library.pool import PoolExecutor
from data_library.runs import Outcome
from data_library.tasks import increment

__all__ = ["Dataset", "Executor", "Outcome", "PipelineFailed", "PoolExecutor", "Progress", "increment"]
