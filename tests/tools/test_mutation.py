"""The sampler plants what it says it plants, the same for a seed, and leaves texts alone."""

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tools.mutation.__main__ import run
from tools.mutation.contexts import (
    Record,
    is_isolated,
)
from tools.mutation.report import lost_text, summary, text
from tools.mutation.sample import sample
from tools.mutation.sandbox import Sandbox
from tools.mutation.sites import find_mutations
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


def test_a_sample_depends_on_its_seed_only_and_each_mistake_is_a_program() -> None:
    first = sample(ROOT, ["rigging.lease"], seed=7, count=40)
    assert first == sample(ROOT, ["rigging.lease"], seed=7, count=40)
    assert first[:10] == sample(ROOT, ["rigging.lease"], seed=7, count=10)
    assert first != sample(ROOT, ["rigging.lease"], seed=8, count=40)
    assert len({(mutation.file, mutation.line) for mutation in first}) == 40
    for mutation in first:
        content = (ROOT / mutation.file).read_bytes()
        assert ast.dump(ast.parse(mutation.apply(content))) != ast.dump(ast.parse(content))


FILE = "lib/iris/src/iris/core/nothing.py"  # and there are no tests of it, either


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
