"""The sampler plants what it says it plants, the same for a seed, and leaves texts alone."""

import ast
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tools.mutation.__main__ import run
from tools.mutation.contexts import (
    FileRecord,
    Record,
    is_isolated,
    record_package,
    select_tests,
    with_unrecorded,
    without_vanished,
)
from tools.mutation.report import lost_text, summary, text
from tools.mutation.sample import same_places, sample, source_files
from tools.mutation.sandbox import Ended, Sandbox
from tools.mutation.sites import Mutation, find_mutations, functions_of
from tools.mutation.trial import Trial, Verdict

ROOT = Path(__file__).parents[2]


def changes(source: str) -> set[str]:
    """The files that come of planting each mistake in a file of one line or more."""
    content = source.encode()
    return {mutation.apply(content).decode() for mutation in find_mutations("x.py", content)}


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("a = b < c", {"a = b <= c", "a = b >= c"}),
        ("a = b is not None", {"a = b is None"}),
        ("a = b not in c", {"a = b in c"}),
        ("a = b and c", {"a = b or c", "a = True and c", "a = b and True"}),
        ("a = not(b)", {"a = (b)"}),
        ("a = max(b)", {"a = min(b)"}),
        ("a = 0o600", {"a = 385"}),
        ("a = 4 * 16", {"a = 5 * 16", "a = 4 * 17", "a = 4 // 16"}),
        ("a = 0o700 << 1", {"a = 449 << 1", "a = 0o700 << 2"}),
        ("a = b * 65", {"a = b // 65"}),
        ("a = b - c", {"a = b + c"}),
        ("a = f(b, c)", {"a = f(c, b)"}),
        ("a = [b for b in c if d]", {"a = [b for b in c if True]"}),
        ("a.b = c", {"pass"}),
        ("del a[b]", {"pass"}),
        ("a = f(b(c), strict=True)", {"a = f(b(c), strict=False)"}),
        ("if a: b()", {"if True: b()", "if False: b()", "if a: pass"}),
        ("def f() -> bool:\n    return a", {"def f() -> bool:\n    return not (a)"}),
        ("def f() -> list[int]:\n    return a", {"def f() -> list[int]:\n    return []"}),
        ("def f():\n    raise ValueError(1)", {"def f():\n    pass"}),
        ("for a in b: continue", {"for a in b: break", "for a in b: pass"}),
    ],
)
def test_each_kind_of_mistake(source: str, wrong: set[str]) -> None:
    assert changes(source) == wrong


@pytest.mark.parametrize(
    "source",
    [
        '"""A text with 1 and 2."""',
        "logger.info('%d', 1 + len(a))",
        "a: Literal[1]",
        "a = f'{b + 1}'",
        "a = b + 'text'",
        "a = 20_000",
        "a = 1 << 18",
        "a = 4 * 2**10 + 3",
        "a = b / 'name'",
        "assert a < b",
        "if TYPE_CHECKING:\n    import b",
        "class A(Protocol):\n    a: int = 1",
        "class A:\n    def __repr__(self) -> str:\n        return b(1)",
        "raise NotImplementedError",
        "a = zip(b(c), d, strict=True)",
        "del a",
        "a = connect(b(c), cached_statements=9)",
    ],
)
def test_what_no_test_should_hold_is_left_alone(source: str) -> None:
    assert changes(source) == set()


def test_positions_are_right_behind_letters_of_several_bytes() -> None:
    assert changes("a = 'é'; b = c == d") == {"a = 'é'; b = c != d"}


def test_a_sample_depends_on_its_seed_only_and_each_mistake_is_a_program() -> None:
    first = sample(ROOT, ["rigging.lease"], seed=7, count=40)
    assert first == sample(ROOT, ["rigging.lease"], seed=7, count=40)
    assert first[:10] == sample(ROOT, ["rigging.lease"], seed=7, count=10)
    assert first != sample(ROOT, ["rigging.lease"], seed=8, count=40)
    assert len({(mutation.file, mutation.line) for mutation in first}) == 40
    for mutation in first:
        content = (ROOT / mutation.file).read_bytes()
        assert ast.dump(ast.parse(mutation.apply(content))) != ast.dump(ast.parse(content))


def test_the_places_of_a_report_are_found_again_also_in_a_file_that_they_moved_to(tmp_path: Path) -> None:
    def write(name: str, content: str) -> Path:
        path = tmp_path / "lib/iris/src/iris" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    old = write("old.py", "def f(a, b):\n    return a < b\n\ndef g(a, b):\n    return a > b\n")
    before = sample(tmp_path, ["iris"], seed=1, count=2)
    trials = [{**asdict(item), "diff": item.diff(old.read_bytes())} for item in before]
    write("old.py", "\n\ndef f(a, b):\n    return a < b\n")
    write("new.py", "X = 1\n\ndef g(a, b):\n    return a > b\n")
    again = {(Path(item.file).name, item.function, item.line) for item in same_places(tmp_path, ["iris"], trials)}
    assert again == {("old.py", "f", 4), ("new.py", "g", 4)}
    old.unlink()
    assert [item.function for item in same_places(tmp_path, ["iris"], trials)] == ["g"]


def test_generated_code_and_the_instruments_of_tests_are_left_out() -> None:
    names = {str(path) for path in source_files(ROOT, ["iris", "rigging"])}
    assert "lib/iris/src/iris/rpc/auth.py" in names
    assert not [name for name in names if "_pb2" in name or "testing" in name]
    assert source_files(ROOT, ["iris.rpc.auth"]) == [Path("lib/iris/src/iris/rpc/auth.py")]
    with pytest.raises(ValueError, match=r"no package 'iris\.nothing'"):
        source_files(ROOT, ["iris.nothing"])


FILE = "lib/iris/src/iris/core/nothing.py"  # and there are no tests of it, either
SOURCE = b"class Load:\n    def add(self):\n        self.n += 1\n\n    def other(self):\n        return 1\n"
NEAR = "lib/iris/tests/core/test_nothing.py::a"
SLOW = "lib/iris/tests/core/test_y.py::c"
FAR = "lib/iris/tests/rpc/test_x.py::b"


def record_with(lines: dict[int, list[int]], functions: dict[str, list[int]], sha: str = "") -> Record:
    return Record([FAR, SLOW, NEAR], [1.0, 50.0, 2.0], {FILE: FileRecord(sha, lines, functions)}, [])


OTHER = "lib/iris/tests/core/test_other.py::d"


def chosen(record: Record, function: str, budget_s: float = 100.0) -> list[str]:
    mutation = Mutation(FILE, 3, function, "constant", 0, 0, "")
    return select_tests(record, mutation, SOURCE, budget_s)


def test_the_nearest_tests_come_first_and_no_more_than_there_is_time_for() -> None:
    record = record_with({}, {"Load.add": [0, 1, 2]})
    assert chosen(record, "Load.add") == [NEAR, SLOW, FAR]
    assert chosen(record, "Load.add", budget_s=10) == [NEAR, FAR]


def test_only_tests_that_execute_the_function_are_run() -> None:
    files = {FILE: FileRecord("of another text", {3: [1]}, {"Load.add": [0], "": [0, 2]})}
    record = Record([FAR, SLOW, OTHER], [1.0, 50.0, 2.0], files, [])
    assert chosen(record, "Load.add") == [FAR], "the lines of the record are of another text"
    assert chosen(record, "Load") == [OTHER, FAR], "outside of functions: all that use the file"


def test_the_modules_own_tests_always_take_part() -> None:
    """They may execute it in a process of which nothing is recorded."""
    record = Record([OTHER, FAR, NEAR], [1.0, 1.0, 2.0], {FILE: FileRecord("", {}, {"Load.add": [1]})}, [])
    assert chosen(record, "Load.add") == [NEAR, FAR]


def test_what_no_test_is_known_to_execute_meets_the_nearest_tests() -> None:
    assert chosen(record_with({}, {}), "Load.add") == [NEAR]


def test_a_record_is_brought_up_to_date_file_of_tests_by_file() -> None:
    old = record_with({3: [0, 2], 6: [1]}, {"Load.add": [0, 2]}, sha="one")
    newer = Record([NEAR + "2"], [1.0], {FILE: FileRecord("one", {3: [0]}, {"Load.add": [0]})}, [], {"a": "b"})
    both = old.replaced(["lib/iris/tests/core/test_nothing.py"], newer)
    assert both.tests == [FAR, SLOW, NEAR + "2"]
    assert both.seconds == [1.0, 50.0, 1.0]
    assert both.files[FILE] == FileRecord("one", {3: [0, 2], 6: [1]}, {"Load.add": [0, 2]})
    assert both.modules == {"a": "b"}
    assert without_vanished(old, ROOT).tests == [], "none of these files is here"
    other = old.replaced([], Record([], [], {FILE: FileRecord("two", {9: []}, {})}, []))
    assert other.files[FILE].lines == {}, "lines of two texts are not the same lines"
    assert other.files[FILE].functions == {"Load.add": [0, 2]}


def test_tests_of_which_nothing_is_recorded_meet_what_is_near_them() -> None:
    new = ["lib/iris/tests/core/test_new.py::a", "lib/iris/tests/cli/test_new.py::b", FAR]
    record = with_unrecorded(Record([FAR], [1.0], {FILE: FileRecord("", {}, {"Load.add": [0]})}, []), new)
    assert chosen(record, "Load.add") == ["lib/iris/tests/core/test_new.py::a", FAR]
    assert record.tests.count(FAR) == 1


def test_a_recording_that_was_interrupted_is_none(tmp_path: Path) -> None:
    """Else tests that had not run would be taken for tests that execute nothing."""

    class Interrupted(Sandbox):
        def run(self, argv: Sequence[str], environment: Mapping[str, str], timeout_s: float, most: int = 4000) -> Ended:
            Path(environment["MUTATION_RESULT"]).write_text("{}")
            return Ended(2, "KeyboardInterrupt")

    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        record_package(Interrupted(ROOT, tmp_path), "iris")


def test_a_file_of_slow_tests_only_is_recorded_as_such(tmp_path: Path) -> None:
    """Else it would be new at each run, and end it."""

    class NothingChosen(Sandbox):
        def run(self, argv: Sequence[str], environment: Mapping[str, str], timeout_s: float, most: int = 4000) -> Ended:
            Path(environment["MUTATION_RESULT"]).write_text("{}")
            return Ended(5, "55 deselected")

    box = NothingChosen(ROOT, tmp_path)
    slow = "lib/rigging/tests/test_slow.py"
    for name in (slow, "lib/rigging/src/rigging/timing/rates.py"):
        (box.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (box.tree / name).write_text("x")
    record = record_package(box, "rigging", [slow])
    assert (record.tests, list(record.modules)) == ([], [slow])
    with pytest.raises(RuntimeError, match="55 deselected"):
        record_package(box, "rigging")


def test_functions_are_known_by_qualified_names() -> None:
    assert list(functions_of(SOURCE)) == [("Load.add", 2, 3), ("Load.other", 5, 6)]


def test_a_report_tells_the_share_and_the_survivors() -> None:
    def trial(line: int, verdict: Verdict) -> Trial:
        return Trial(str(line), FILE, line, "Load.add", "constant", "-a\n+b", verdict, "", 3, "")

    verdicts = [Verdict.KILLED, Verdict.SURVIVED, Verdict.TIMED_OUT, Verdict.KILLED]
    trials = [trial(line, verdict) for line, verdict in enumerate(verdicts)]
    assert summary(trials, 7)["noticed_share"] == 0.75
    assert "iris: 3 of 4 noticed, 75 % ± 22" in text(trials)
    assert f"survived 3 tests: {FILE}:1 Load.add\n    -a\n    +b" in text(trials)
    assert Trial.from_json(trials[0].to_json()) == trials[0]


def test_a_comparison_names_what_is_not_noticed_any_more() -> None:
    def trial(line: int, verdict: Verdict) -> Trial:
        return Trial("", FILE, line, f"f{line}", "constant", f"@@ -{line} @@\n-    a\n+    b", verdict, "t::t", 3, "")

    before = [json.loads(trial(line, verdict).to_json()) for line, verdict in enumerate([*Verdict, Verdict.KILLED])]
    told = lost_text(before, [trial(0, Verdict.SURVIVED), trial(1, Verdict.SURVIVED), trial(3, Verdict.KILLED)])
    assert told == f"not noticed any more: {FILE}:0 f0, before by t::t\n    @@ -0 @@\n    -    a\n    +    b"
    assert lost_text(before, [trial(3, Verdict.KILLED)]) == "all that was noticed before is noticed now"


SMALL = {
    "lib/iris/src/iris/__init__.py": "",
    "lib/iris/src/iris/small.py": "def is_small(a: int) -> bool:\n    return a < 10\n",
    "lib/iris/tests/test_small.py": "from iris.small import is_small\ndef test_it():\n    assert is_small(9)\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n",
}


@pytest.mark.skipif(not is_isolated(), reason="needs Linux namespaces (unshare)")
def test_a_mistake_is_planted_met_by_a_test_and_taken_out_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name, content in SMALL.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    for path in (ROOT / "tools/mutation").glob("*.py"):
        (root / "tools/mutation").mkdir(parents=True, exist_ok=True)
        (root / "tools/mutation" / path.name).write_bytes(path.read_bytes())
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    sandbox = Sandbox(root, tmp_path / "copy")
    sandbox.prepare()
    original = SMALL["lib/iris/src/iris/small.py"].encode()
    found = [item for item in find_mutations("lib/iris/src/iris/small.py", original) if item.operator == "comparison"]
    record = Record(["lib/iris/tests/test_small.py::test_it"], [0.1], {}, [])
    log = tmp_path / "log.jsonl"
    trials = run(found, [sandbox], {"iris": record}, log, 10.0)
    assert {trial.diff.splitlines()[-1]: trial.verdict for trial in trials} == {
        "+    return a <= 10": Verdict.SURVIVED,
        "+    return a >= 10": Verdict.KILLED,
    }
    assert (sandbox.tree / "lib/iris/src/iris/small.py").read_bytes() == original
    assert [json.loads(line)["verdict"] for line in log.read_text().splitlines()] == [t.verdict for t in trials]
    assert run(found, [sandbox], {}, log, 10.0) == trials, "what is in the log is not tried again"
