"""A pytest plugin: the selection of tests (the tier), their distribution over processes, and a final summary.

Tiers: the fast one (no marker), `process` and `soak`; a test with several markers is in the slowest. Quarantined tests
run only with `-m quarantine`. Each run ends with a list of files that are slow for their tier, and of quarantined
tests.
"""

import functools
import os
import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

FAST = "not process and not soak"
MOST_QUARANTINED = 10
_MARK_OF = {FAST: None, "process": "mark.process", "soak": "mark.soak"}
_FILE_SECONDS = {FAST: 3.0, "process": 60.0}  # more than this is told, and fails nothing
_MARKED_WHOLE = re.compile(r"^pytestmark = .*mark\.(process|soak)\b", re.MULTILINE)
_MAX_PROCESSES = 8
_QUARANTINED = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Start the summary of this run."""
    config.stash[_QUARANTINED] = {}
    if not _is_sharing(config):
        config.pluginmanager.register(Summary(config.getoption("-m")))


def is_whole(config: pytest.Config) -> bool:
    """Return whether the run selects a whole tier, without paths or `-k`."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.getoption("-k")


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes for a whole tier; 0 for a part of a tier or the soak tier, which run in this
    process."""
    tier = config.getoption("-m")
    # Not every run has the plugin that knows "--last-failed".
    is_watched = config.getoption("-s") == "no" or config.getoption("lf", False)
    if not is_whole(config) or is_watched or tier not in (FAST, "process"):
        return 0
    # Tests wait for threads, processes and clocks, so there may be more of them than there are processors.
    return min((os.cpu_count() or 1) + 2, _MAX_PROCESSES)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without tests of the tier, because importing them takes long."""
    tier = config.getoption("-m")
    if tier not in _MARK_OF or not is_whole(config) or not collection_path.match("test_*.py"):
        return None
    mark, text = _MARK_OF[tier], collection_path.read_text()
    # A conftest.py may give marks, too.
    text += "".join(_text_of(folder / "conftest.py") for folder in list(collection_path.parents)[:3])
    has_none = _MARKED_WHOLE.search(text) if mark is None else mark not in text
    return True if has_none else None


class FileScheduler(LoadScopeScheduling):  # type: ignore[misc]
    """Runs each file's tests in one process, and all files with tests on Ray in the same process, which shares
    clusters."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "ray" if _is_on_ray(self.config.rootpath / path) else path


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduler:
    """Spread files, not tests."""
    return FileScheduler(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect quarantined tests and tests of slower tiers. With several processes, run tests on Ray first."""
    tier = config.getoption("-m")
    dropped = []
    if "quarantine" not in tier:
        dropped = [item for item in items if item.get_closest_marker("quarantine")]
        for item in dropped:
            mark = item.get_closest_marker("quarantine")
            if mark is None or len(mark.args) != 1:
                raise pytest.UsageError(f"{item.nodeid}: quarantine takes one reason: @pytest.mark.quarantine('why')")
            config.stash[_QUARANTINED][item.nodeid] = str(mark.args[0])
        if len(dropped) > MOST_QUARANTINED:
            raise pytest.UsageError(f"{len(dropped)} tests are in quarantine, at most {MOST_QUARANTINED} may be")
    if tier == "process":
        dropped += [item for item in items if item.get_closest_marker("soak") and item not in dropped]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        left = set(dropped)
        items[:] = [item for item in items if item not in left]
    if _is_sharing(config):
        items.sort(key=lambda item: not _is_on_ray(item.path))


class Summary:
    """The final summary of a run: files that are slow for their tier, and tests in quarantine."""

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._seconds: dict[str, float] = {}
        self._quarantined: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the time of each file."""
        name = report.nodeid.partition("::")[0]
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Collect the quarantined tests of a worker process."""
        self._quarantined.update(getattr(node, "workeroutput", {}).get("quarantined", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Print the summary."""
        most = _FILE_SECONDS.get(self._tier)
        slow = (
            [] if most is None else sorted((seconds, name) for name, seconds in self._seconds.items() if seconds > most)
        )
        if slow:
            terminalreporter.section(f"files over {most:.0f} s, the share of one in this tier")
            for seconds, name in reversed(slow):
                terminalreporter.line(f"{seconds:6.1f} s  {name}")
        quarantined = self._quarantined | config.stash[_QUARANTINED]
        if quarantined:
            terminalreporter.section(f"{len(quarantined)} in quarantine (run them with -m quarantine)")
            for name, reason in sorted(quarantined.items()):
                terminalreporter.line(f"{name}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the quarantined tests to the controlling process."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["quarantined"] = session.config.stash[_QUARANTINED]


@functools.cache
def _text_of(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _is_sharing(config: pytest.Config) -> bool:
    """Return whether this process is a worker of a distributed run."""
    return hasattr(config, "workerinput")


@functools.cache
def _is_on_ray(path: Path) -> bool:
    return "mark.ray" in path.read_text()
