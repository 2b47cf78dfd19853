"""A pytest plugin that records the code each test executes, or runs given tests in order, and reports outcomes.

`MUTATION_ORDER` names a file with node ids, one per line: only these tests run, in this order. `MUTATION_RESULT` names
the JSON file to write, with the outcome and duration of every test. With `COVERAGE_PROCESS_START` each test is a
context.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

TEST_VARIABLE = "COVERAGE_MUTATION_TEST"
"""The context of processes that a test starts. Workers and guardians keep variables with this prefix."""


class MutationPlugin:
    def __init__(self) -> None:
        self._results: dict[str, dict[str, object]] = {}
        self._coverage: coverage.Coverage | None = None
        config = os.environ.get("COVERAGE_PROCESS_START")
        if config:
            self._coverage = coverage.Coverage(config_file=config)
            self._coverage.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        order = os.environ.get("MUTATION_ORDER")
        if not order:
            return
        place = {name: number for number, name in enumerate(Path(order).read_text().splitlines())}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in place])
        items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        os.environ[TEST_VARIABLE] = item.nodeid
        if self._coverage:
            self._coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = self._results.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0, "error": ""})
        entry["seconds"] = float(str(entry["seconds"])) + report.duration
        if report.outcome != "passed":
            entry["outcome"] = report.outcome
            entry["error"] = report.longreprtext[-500:]

    def pytest_sessionfinish(self) -> None:
        if self._coverage:
            self._coverage.stop()
            self._coverage.save()
        target = os.environ.get("MUTATION_RESULT")
        if target:
            Path(target).write_text(json.dumps(self._results))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(MutationPlugin(), "mutation")
