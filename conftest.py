"""For all tests of the workspace."""

import functools
import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from fray.testing.ray_harness import RayHarness

# A script for clusters, which has no tests of its own (they are in lib/marin/tests/run/test_documents_on_ray.py).
collect_ignore = ["tests/test_ray_cluster.py"]

# A shell's background jobs are born deaf to Ctrl-C, and so would be all that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of interpreters. What these import is compiled once, beside the source: a task sees no other
# folder. It takes a third off the time of tests with many tasks.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Any test may be the first to import ray, in the process where others start a cluster.
RayHarness.prepare()

_ROOT = Path(__file__).parent
_MAX_PROCESSES = 8


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes run the whole fast tier; a part of it, or another tier, runs in this one: 0."""
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and config.getoption("-m") == "not slow"
    # Not every run has the plugin that knows "--last-failed".
    is_watched = config.getoption("-s") == "no" or config.getoption("lf", False)
    if not is_whole or config.getoption("-k") or is_watched:
        return 0
    # Many tests wait for processes and clocks, so there may be more than there are processors: on two of them,
    # the whole tier took 6:31 in three processes and 5:49 in four.
    return min((os.cpu_count() or 1) + 2, _MAX_PROCESSES)


class FileScheduler(LoadScopeScheduling):
    """Each file's tests run in one process; those of all files with tests on Ray in the same, which shares clusters."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "ray" if _rank(_ROOT / path) == 0 else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduler:
    return FileScheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: what is collected stays, and is not looked through from then on."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter's end find all garbage: nanobind takes for leaked what is still frozen then."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Where processes share the tests, each begins elsewhere: what one has compiled, the others only read."""
    report = yield
    place = _share(collector.config)
    if place is not None and isinstance(collector, pytest.Directory) and report.passed:
        worker, count = place
        begin = len(report.result) * worker // count
        report.result[:] = report.result[begin:] + report.result[:begin]
    return report


class SameOrder:
    """The order of tests is the same in all processes that share them, in whatever order they collected."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: item.path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share the tests, the longest come first: those on Ray, then those with processes of their own."""
    if _share(config) is not None:
        items.sort(key=lambda item: _rank(item.path))


def pytest_configure(config: pytest.Config) -> None:
    """Give processes that share the tests one order."""
    if _share(config) is not None:
        config.pluginmanager.register(SameOrder())


def _share(config: pytest.Config) -> tuple[int, int] | None:
    """The number of this process and how many there are, where processes share the tests."""
    given = getattr(config, "workerinput", None)
    return None if given is None else (int(given["workerid"].removeprefix("gw")), given["workercount"])


@functools.cache
def _rank(path: Path) -> int:
    text = path.read_text()
    return 0 if "mark.ray" in text else 1 if "mark.e2e" in text else 2
