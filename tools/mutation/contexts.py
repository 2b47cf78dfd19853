"""Record which tests execute which code, once per package, to select the tests that can detect a mistake.

Fast and process tests take part. Code in processes that a test starts counts, too, if they end by themselves and keep
their environment. Functions are recorded by name, so a record stays valid after most changes of the files.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

import coverage

from tools.mutation.plugin import TEST_VARIABLE
from tools.mutation.sample import source_files
from tools.mutation.sandbox import Sandbox
from tools.mutation.sites import Mutation, functions_of

_MODULE: Final = ""
_RECORDING_S: Final = 7200.0
_COLLECTING_S: Final = 600.0
_UNKNOWN_S: Final = 1.0
_ALL_PASSED: Final = 0
_SOME_FAILED: Final = 1
_NONE_CHOSEN: Final = 5
_OWN: Final = 3  # for a file of tests that has the name of the module
_NEAR: Final = 2  # in the folder of the mutated file, or in one below it


@dataclass(slots=True)
class FileRecord:
    """The numbers of the tests that execute each line and function of one file, valid for a text with this `sha`."""

    sha: str
    lines: dict[int, list[int]] = field(default_factory=dict)
    functions: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Record:
    """The code that the fast tests of one package execute.

    Args:
        tests: Node ids of passed tests. seconds: Duration of each. failed: Node ids of other tests.
        files: The executed code, by source file. modules: The `sha` of each recorded test file.
        unrecorded: Tests without a record, used for mistakes in nearby code.
    """

    tests: list[str]
    seconds: list[float]
    files: dict[str, FileRecord]
    failed: list[str]
    modules: dict[str, str] = field(default_factory=dict)
    unrecorded: list[int] = field(default_factory=list)

    def save(self, path: Path) -> None:
        files = {name: [item.sha, item.lines, item.functions] for name, item in self.files.items()}
        content = {"tests": self.tests, "seconds": self.seconds, "files": files, "failed": self.failed}
        path.write_text(json.dumps({**content, "modules": self.modules}))

    @classmethod
    def load(cls, path: Path) -> "Record":
        content = json.loads(path.read_text())
        files = {
            name: FileRecord(sha, {int(line): tests for line, tests in lines.items()}, functions)
            for name, (sha, lines, functions) in content["files"].items()
        }
        return cls(content["tests"], content["seconds"], files, content["failed"], content.get("modules", {}))

    def replaced(self, modules: Collection[str], newer: "Record") -> "Record":
        """Return this record, updated by a newer record of some test files."""
        kept = [number for number, name in enumerate(self.tests) if _module_of(name) not in modules]
        moved = {old: new for new, old in enumerate(kept)}
        merged: dict[str, FileRecord] = {}
        for name, item in newer.files.items():
            before = self.files.get(name, FileRecord(item.sha))
            same = before.sha == item.sha
            merged[name] = FileRecord(
                item.sha if same else "",
                _merged(before.lines, item.lines, moved) if same else {},
                _merged(before.functions, item.functions, moved),
            )
        return Record(
            [self.tests[number] for number in kept] + newer.tests,
            [self.seconds[number] for number in kept] + newer.seconds,
            merged,
            [name for name in self.failed if _module_of(name) not in modules] + newer.failed,
            {**self.modules, **newer.modules},
        )


_Key = TypeVar("_Key", int, str)


def _merged(old: dict[_Key, list[int]], new: dict[_Key, list[int]], moved: dict[int, int]) -> dict[_Key, list[int]]:
    """Merge two tables. `moved` renumbers tests of the old one; tests of the new one follow."""
    merged = {key: [moved[number] for number in numbers if number in moved] for key, numbers in old.items()}
    for key, numbers in new.items():
        merged[key] = merged.get(key, []) + [len(moved) + number for number in numbers]
    return merged


def _module_of(test: str) -> str:
    return test.partition("::")[0]


def changed_modules(record: Record, tree: Path, package: str) -> list[str]:
    """Return the test files of a package that have changed since the record."""
    here = sorted((tree / "lib" / package / "tests").rglob("test_*.py"))
    found = {str(path.relative_to(tree)): _sha(path.read_bytes()) for path in here}
    return [name for name, sha in found.items() if record.modules.get(name) != sha]


def select_tests(record: Record, mutation: Mutation, source: bytes, budget_s: float) -> list[str]:
    """Return the tests that can detect a mistake, nearest first, then quickest, within the time limit.

    Tests in the module's own test file always take part, because their code in killed processes, or with another
    environment, is not recorded.
    """
    numbers = _covering(record, mutation, source)
    own = _OWN + _NEAR * len(Path(mutation.file).parts[4:-1])
    if not numbers:
        best = max((_nearness(mutation.file, name) for name in record.tests), default=0)
        numbers = {n for n, name in enumerate(record.tests) if _nearness(mutation.file, name) == best}
    numbers |= {n for n, name in enumerate(record.tests) if _nearness(mutation.file, name) == own}
    numbers |= {n for n in record.unrecorded if _nearness(mutation.file, record.tests[n]) >= _NEAR}
    near_first = sorted(numbers, key=lambda n: (-_nearness(mutation.file, record.tests[n]), record.seconds[n]))
    chosen: list[str] = []
    spent = 0.0
    for number in near_first:
        if chosen and spent + record.seconds[number] > budget_s:
            continue
        spent += record.seconds[number]
        chosen.append(record.tests[number])
    return chosen


def without_vanished(record: Record, tree: Path) -> Record:
    """Return the record without tests whose files no longer exist."""
    gone = {name for name in map(_module_of, record.tests) if not (tree / name).is_file()}
    nothing = Record([], [], {name: FileRecord(item.sha) for name, item in record.files.items()}, [])
    return record.replaced(gone, nothing) if gone else record


def with_unrecorded(record: Record, tests: Iterable[str]) -> Record:
    """Return the record with new tests added as unrecorded."""
    known = set(record.tests)
    new = [name for name in tests if name not in known]
    first = len(record.tests)
    numbers = list(range(first, first + len(new)))
    return replace(
        record, tests=record.tests + new, seconds=record.seconds + [_UNKNOWN_S] * len(new), unrecorded=numbers
    )


def collect(sandbox: Sandbox, modules: Sequence[str]) -> list[str]:
    """Return the node ids of the fast tests in test files."""
    ended = sandbox.run([*PYTEST, "--collect-only", *modules], {}, _COLLECTING_S, 2**20)
    return [line for line in ended.output.splitlines() if "::" in line and line.startswith("lib/")]


def _covering(record: Record, mutation: Mutation, source: bytes) -> set[int]:
    known = record.files.get(mutation.file)
    if known is None:
        return set()
    if known.sha == _sha(source) and mutation.line in known.lines:
        return set(known.lines[mutation.line])
    if mutation.function in known.functions:
        return set(known.functions[mutation.function])
    return set(known.functions.get(_MODULE, ()))


def _nearness(file: str, test: str) -> int:
    """Return the number of folders (and the module's name) that a test's path shares with a source file's path."""
    inner = Path(file).with_suffix("").parts[4:]  # without lib/<package>/src/<package>
    theirs = [part.removeprefix("test_") for part in Path(_module_of(test)).with_suffix("").parts[3:]]
    shared = 0
    for mine, other in zip(inner[:-1], theirs[:-1], strict=False):
        if mine != other:
            break
        shared += 1
    is_module = bool(theirs) and theirs[-1] == inner[-1]
    return _NEAR * shared + (_OWN if is_module else 0)


def _sha(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:16]


def record_package(sandbox: Sandbox, package: str, modules: Sequence[str] = ()) -> Record:
    """Record the fast tests of a package, or of some test files, by running them once. Takes minutes."""
    place = sandbox.place / "record"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    config, result = place / "coveragerc", place / "result.json"
    source = sandbox.tree / "lib" / package / "src"
    config.write_text(
        f"[run]\nsource = {source}\nomit = *_pb2*\nparallel = true\nsigterm = true\n"
        f"data_file = {place}/data\ncontext = ${{{TEST_VARIABLE}-}}\n"
    )
    environment = {"COVERAGE_PROCESS_START": str(config), "MUTATION_RESULT": str(result)}
    ended = sandbox.run([*PYTEST, "--timeout=300", *(modules or [f"lib/{package}/tests"])], environment, _RECORDING_S)
    # After a session that was interrupted there is a result, too: of the tests until then.
    # Chosen files may hold slow tests only.
    whole = (_ALL_PASSED, _SOME_FAILED, _NONE_CHOSEN) if modules else (_ALL_PASSED, _SOME_FAILED)
    if ended.status not in whole or not result.exists():
        raise RuntimeError(f"the tests of {package} could not be run:\n{ended.output}")
    results = json.loads(result.read_text())
    names = [name for name, entry in results.items() if entry["outcome"] == "passed"]
    failed = [name for name, entry in results.items() if entry["outcome"] == "failed"]
    files = _read_files(sandbox, package, place, {name: number for number, name in enumerate(names)})
    ran = modules or {_module_of(name) for name in results}
    shas = {name: _sha((sandbox.tree / name).read_bytes()) for name in ran}
    return Record(names, [results[name]["seconds"] for name in names], files, failed, shas)


def _read_files(sandbox: Sandbox, package: str, place: Path, numbers: dict[str, int]) -> dict[str, FileRecord]:
    data = coverage.CoverageData(str(place / "combined"))
    for part in place.glob("data*"):
        try:
            other = coverage.CoverageData(str(part))
            other.read()
            data.update(other)
        except coverage.CoverageException:
            continue  # of a process that was killed while it wrote
    files: dict[str, FileRecord] = {}
    for path in source_files(sandbox.tree, [package]):
        source = (sandbox.tree / path).read_bytes()
        files[str(path)] = entry = FileRecord(_sha(source))
        contexts = data.contexts_by_lineno(str(sandbox.tree / path))
        for line, names in contexts.items():
            entry.lines[line] = _numbers(names, numbers)
        entry.functions[_MODULE] = sorted({number for tests in entry.lines.values() for number in tests})
        inside: set[int] = set()
        for name, first, last in functions_of(source):
            found = {number for line in range(first, last + 1) for number in entry.lines.get(line, ())}
            entry.functions[name] = sorted(found)
            inside.update(range(first + 1, last + 1))
        # Imports happen once, in whichever test is the first: such a line belongs to all tests of the file.
        entry.lines = {line: tests for line, tests in entry.lines.items() if line in inside}
    return files


def _numbers(names: Iterable[str], numbers: dict[str, int]) -> list[int]:
    # "static context|dynamic context": the first of processes that tests start, the second of their own process.
    parts = {part for name in names for part in (name, *name.split("|"))}
    return sorted({numbers[part] for part in parts if part in numbers})


PYTEST: Final = (
    "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tools.mutation.plugin", "-m", "not soak",
)  # fmt: skip


def is_isolated() -> bool:
    """Return whether this system has the namespaces that the sandbox needs."""
    return os.path.exists("/proc/self/ns/pid") and any(
        os.access(os.path.join(folder, "unshare"), os.X_OK) for folder in os.get_exec_path()
    )
