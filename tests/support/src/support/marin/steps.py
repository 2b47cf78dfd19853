"""Types of the fixtures that make steps and executors."""

from collections.abc import Callable
from typing import Any

from marin.execution import Executor, ExecutorStep

__all__ = ["MakeExecutor", "MakeStep"]

MakeStep = Callable[..., ExecutorStep[Any]]
MakeExecutor = Callable[[], Executor]
