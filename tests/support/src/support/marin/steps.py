"""Types of the fixtures that make steps and executors, and a function that fails."""

from collections.abc import Callable
from typing import Any

from marin.execution import Executor, ExecutorStep

__all__ = ["MakeExecutor", "MakeStep", "fail"]

MakeStep = Callable[..., ExecutorStep[Any]]
MakeExecutor = Callable[[], Executor]


def fail(_config: Any) -> None:
    raise ValueError("bad")
