"""Coroutine tests: import both names in a conftest.py, and `async def test_...` runs on the loop of its fixtures."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

__all__ = ["pytest_pyfunc_call", "runner"]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test, also for fixtures that need a running loop."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function on the loop of its fixtures."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    runner: Any = pyfuncitem.funcargs.get("runner") or pyfuncitem._request.getfixturevalue("runner")
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
