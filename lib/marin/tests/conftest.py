"""Fixtures for the executor's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep


@dataclass(frozen=True)
class AnyConfig:
    """A config with two fields of any type."""

    x: Any = None
    y: Any = None


def do_nothing(config: AnyConfig) -> None:
    """A step's function."""


@pytest.fixture
def make_step() -> Callable[..., ExecutorStep[Any]]:
    """Make a step from a name, the value in its config, and (by keyword) its function and other attributes."""

    def make(name: str, x: Any = None, y: Any = None, fn: Any = do_nothing, **attributes: Any) -> ExecutorStep[Any]:
        return ExecutorStep(name=name, fn=fn, config=AnyConfig(x, y), **attributes)

    return make


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A storage root that does not exist yet."""
    return str(tmp_path / "prefix")


@pytest.fixture
def make_executor(prefix: str) -> Callable[[], Executor]:
    """Return a function that makes executors with the same prefix."""
    return lambda: Executor(prefix, f"{prefix}/experiments")
