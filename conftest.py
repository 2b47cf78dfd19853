"""Fixtures and hooks for all tests of the workspace."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator

import pytest

from fray.testing.ray_harness import RayHarness

# A script for clusters, which has no tests of its own (they are in lib/marin/tests/run/test_documents_on_ray.py).
collect_ignore = ["tests/test_ray_cluster.py"]

# A shell's background jobs are born deaf to Ctrl-C, and so would be all that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# So are those of nohup to a closed terminal.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The tests start hundreds of interpreters. What these import is compiled once, beside the source: a task sees no other
# folder. It takes a third off the time of tests with many tasks.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# By which commands know that uv runs them: `uv run pytest` and `pytest` are to see the same texts.
os.environ.pop("UV_RUN_RECURSION_DEPTH", None)

# Any test may be the first to import ray, in the process where others start a cluster.
RayHarness.prepare()


@pytest.fixture(autouse=True)
def logging_is_as_it_was() -> Iterator[None]:
    """Undo the logging setup of a test that runs a program's `main` in this process."""
    root = logging.getLogger()
    handlers, level = set(root.handlers), root.level
    yield
    for handler in set(root.handlers) - handlers:
        if not type(handler).__module__.startswith("_pytest."):
            root.removeHandler(handler)
    root.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Switch off garbage collection while pytest collects, and freeze the collected objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Unfreeze all objects before the interpreter ends: nanobind reports frozen ones as leaked."""
    gc.unfreeze()
