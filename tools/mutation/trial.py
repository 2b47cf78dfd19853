"""Plant one mistake in a copy, and run the tests that can detect it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tools.mutation.contexts import PYTEST, Record, select_tests
from tools.mutation.sandbox import Sandbox
from tools.mutation.sites import Mutation

_NOTHING_RAN: Final = (4, 5)  # pytest's exit status for a test that does not exist, and for no tests at all
_STARTUP_S: Final = 60.0
_SLOWDOWN: Final = 10.0  # a test may take so many times as long as when it was recorded, on a busy machine


class Verdict(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of the tests for one mistake.

    Args:
        test: The test that failed or hung; "" if none did. tried: The number of tests run.
    """

    key: str
    file: str
    line: int
    function: str
    operator: str
    diff: str
    verdict: Verdict
    test: str
    tried: int
    error: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Trial":
        content = json.loads(text)
        return cls(**{**content, "verdict": Verdict(content["verdict"])})


def run_trial(sandbox: Sandbox, record: Record, mutation: Mutation, budget_s: float) -> Trial:
    """Plant a mistake, run the tests until one fails, and take the mistake out again."""
    source = (sandbox.tree / mutation.file).read_bytes()
    tests = select_tests(record, mutation, source, budget_s)
    if not tests:
        return _trial(mutation, source, Verdict.SURVIVED, "", 0, "no test executes it")
    sandbox.write(mutation.file, mutation.apply(source))
    try:
        return _judge(sandbox, record, mutation, source, tests)
    finally:
        sandbox.write(mutation.file, source)


def _judge(sandbox: Sandbox, record: Record, mutation: Mutation, source: bytes, tests: Sequence[str]) -> Trial:
    seconds = dict(zip(record.tests, record.seconds, strict=True))
    slowest = max(seconds[name] for name in tests)
    one_s = 20.0 + _SLOWDOWN * slowest
    all_s = _STARTUP_S + one_s + _SLOWDOWN * sum(seconds[name] for name in tests)
    order, result = sandbox.place / "order", sandbox.place / "result.json"
    order.write_text("\n".join(tests))
    result.unlink(missing_ok=True)
    files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
    environment = {"MUTATION_ORDER": str(order), "MUTATION_RESULT": str(result)}
    ended = sandbox.run([*PYTEST, "-x", f"--timeout={one_s:.0f}", *files], environment, all_s)
    results = json.loads(result.read_text()) if result.exists() else {}
    failed = [name for name, entry in results.items() if entry["outcome"] == "failed"]
    if ended.status is None:
        return _trial(mutation, source, Verdict.TIMED_OUT, tests[len(results) % len(tests)], len(tests), "")
    if failed:
        error = results[failed[0]]["error"]
        verdict = Verdict.TIMED_OUT if "Failed: Timeout" in error else Verdict.KILLED
        return _trial(mutation, source, verdict, failed[0], len(results), error)
    if ended.status in _NOTHING_RAN:
        return _trial(mutation, source, Verdict.SURVIVED, "", 0, f"no test was run: {ended.output[-300:]}")
    if ended.status != 0:
        # The files of the tests cannot even be imported, or the process of the tests was ended.
        return _trial(mutation, source, Verdict.KILLED, files[0], len(results), ended.output[-500:])
    return _trial(mutation, source, Verdict.SURVIVED, "", len(results), "")


def _trial(mutation: Mutation, source: bytes, verdict: Verdict, test: str, tried: int, error: str) -> Trial:
    return Trial(
        mutation.key(source), mutation.file, mutation.line, mutation.function, mutation.operator, mutation.diff(source),
        verdict, test, tried, error,
    )  # fmt: skip


def read_trials(path: Path) -> dict[str, Trial]:
    """Return the results of an earlier run by key; empty without an earlier run."""
    if not path.exists():
        return {}
    trials = []
    for line in path.read_text().splitlines():
        try:
            trials.append(Trial.from_json(line))
        except ValueError:
            continue  # the run was ended while it wrote
    return {trial.key: trial for trial in trials}
