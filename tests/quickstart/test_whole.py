"""The quickstart as its users start it: on each backend, again, and with what it cannot use."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from experiments.quickstart import Options, make_report, read_options
from experiments.quickstart_steps.report import headline
from fray.testing import BackendHarness
from marin.execution import ExecutorStep, upstream_steps
from marin.execution.script.main import parse_command_line
from support.iris.embedded_cluster import running_cluster
from support.marin.programs import run_program
from tests.docs.blocks import blocks_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SHORT = ("--steps", "20")


STEPS = 18
PAGE = "docs/tutorials/quickstart.md"

FRAY_BACKENDS = [
    "local",
    pytest.param("local-process", marks=pytest.mark.soak),
    pytest.param("iris", marks=pytest.mark.soak),
    pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.soak]),
]


def start(prefix: Path, *words: str, spec: str = "local") -> "subprocess.Popen[str]":
    environment = {**os.environ, "FRAY_CLIENT": spec, "MARIN_PREFIX": str(prefix)}
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.quickstart", *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(prefix: Path, *words: str, spec: str = "local", code: int = 0) -> tuple[str, str]:
    """Run it to its end; returns what it printed, and what it logged."""
    process = start(prefix, *words, spec=spec)
    try:
        out, err = process.communicate(timeout=550)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == code, (out[-5000:], err[-5000:])
    return out, err


def folder(prefix: Path, step: str) -> Path:
    [found] = (prefix / "quickstart").glob(f"{step}-*")
    return found


def summary(prefix: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(prefix, "report") / "summary.json").read_text())
    return found


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of a run in one process that nothing disturbed."""
    prefix = tmp_path_factory.mktemp("expected")
    out, _ = run(prefix, *SHORT)
    assert out.count("SUCCESS (ran") == STEPS
    assert f"report: {folder(prefix, 'report')}/report.html" in out
    return prefix


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Assert that two runs made the same: all but what is computed with floating-point numbers to the last digit."""
    for name in ("training", "evaluation"):
        one_figures, other_figures = one[name], other[name]
        assert set(one_figures) == set(other_figures)
        for key, value in one_figures.items():
            if key != "sample":
                assert other_figures[key] == pytest.approx(value, abs=1e-2), key
    rest = {key: value for key, value in one.items() if key not in ("training", "evaluation")}
    assert rest == {key: value for key, value in other.items() if key not in ("training", "evaluation")}


def test_every_backend_makes_the_same_once_only(fray_harness: BackendHarness, expected: Path, tmp_path: Path) -> None:
    here = fray_harness.name == "local"
    prefix = expected if here else tmp_path
    if not here:
        run(prefix, *SHORT, spec=fray_harness.spec)
    assert_same(summary(expected), summary(prefix))
    for path in folder(expected, "tokens").glob("*.npy"):
        assert (folder(prefix, "tokens") / path.name).read_bytes() == path.read_bytes()
    out, _ = run(prefix, *SHORT, spec=fray_harness.spec)
    assert out.count("SUCCESS (already done)") == STEPS
    assert "SUCCESS (ran" not in out


def test_a_rerun_is_equal_byte_for_byte(expected: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "FRAY_CLIENT": "local", "MARIN_PREFIX": str(expected)}
    marin, file = [sys.executable, "-m", "marin.cli"], str(tmp_path / "quickstart.json")
    run_program([*marin, "attest", "quickstart", "-o", file], ROOT, environment)
    done = run_program([*marin, "verify", "--json", file], ROOT, environment, seconds=400)
    found = json.loads(done.stdout)
    assert [step["status"] for step in found["steps"]] == ["equal"] * STEPS
    assert found["equal"]


def test_the_report_has_the_figures_of_the_run(expected: Path) -> None:
    figures = summary(expected)
    report = (folder(expected, "report") / "report.html").read_text()
    pages = len(list((ROOT / "tests/quickstart-data/pages").rglob("*.htm*")))
    assert figures["pages"]["pages"] == pages == figures["text"]["documents"] + figures["text"]["rejected"]
    assert figures["text"]["rejected"] == 5
    assert figures["unique"] == {
        "documents": pages - 5, "exact_duplicates": 4, "near_duplicates": 8, "kept": pages - 17,
    }  # fmt: skip
    assert figures["filtered"]["removed"] == 12
    assert figures["evaluation"]["heldout_loss"] < figures["evaluation"]["unigram"]["loss"] + 0.5
    for text in (f"{figures['tokens']['train_tokens']:,} to train on", "broken/picture.html", "a NUL at byte 8"):
        assert text in report
    assert report.count("data:image/png;base64,") == 3
    for name in ("documents", "quality", "loss"):
        assert (folder(expected, "report") / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    removed = (folder(expected, "filtered") / "removed.jsonl").read_text().splitlines()
    assert {json.loads(line)["id"].split("/")[0] for line in removed} == {"shop", "site"}


def test_the_commands_of_the_page() -> None:
    lines = [line for block in blocks_of(PAGE) if block.language == "bash" for line in block.text.splitlines()]
    for line in lines:
        before, _, after = line.partition("python -m experiments.quickstart")
        _, rest = read_options(shlex.split(after))
        parse_command_line(rest)  # ends this process when it does not know one
        spec = re.search(r"FRAY_CLIENT='?([a-z]+)", before)
        assert spec is None or spec[1] in ("local", "ray"), line
        # test_every_backend_makes_the_same_once_only runs them; on a cluster the jobs' packages come from their steps.
        assert ("--extra quickstart" in before) != ("iris job run -- " in before), line
    assert len(lines) == 8


def test_the_figures_of_the_page_are_those_of_the_run(expected: Path) -> None:
    [shown] = [block.text for block in blocks_of(PAGE) if block.language == "text"]
    names = [line.partition(": ")[0] for line in shown.splitlines()]
    found = dict(headline(summary(expected)))
    assert names == [*found, "report"]
    for line in shown.splitlines():
        name, _, words = line.partition(": ")
        if name not in ("training", "held-out loss", "report"):  # the tests train for fewer steps
            assert words == found[name]


def all_steps(last: ExecutorStep[Any]) -> list[ExecutorStep[Any]]:
    above = [step for each in upstream_steps(last.config) for step in all_steps(each)]
    return list(dict.fromkeys([*above, last]))


def test_the_extra_has_the_packages_of_each_step_and_no_others() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    steps = all_steps(make_report(Options()))
    assert len(steps) == STEPS
    asked = {group for step in steps for group in getattr(step.fn, "pip_dependency_groups", ())}
    assert asked == {name for name in extras if name.startswith("quickstart-")}
    [whole] = extras["quickstart"]
    assert set(whole.partition("[")[2].rstrip("]").split(",")) == asked


def test_the_script_that_plans_the_steps_needs_none_of_their_packages() -> None:
    code = "import sys, experiments.quickstart as q; q.make_report(q.Options()); print(*sys.modules)"
    loaded = set(run_program([sys.executable, "-c", code], ROOT).stdout.split())
    heavy = {"jax", "numpy", "optax", "rensa", "resiliparse", "selectolax", "tokenizers", "vl_convert", "vowpalwabbit"}
    assert "experiments.quickstart" in loaded
    assert not heavy & loaded


@pytest.mark.soak
def test_as_an_iris_job_whose_steps_bring_their_packages(expected: Path, tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        for ending in ("SUCCESS (ran", "SUCCESS (already done)"):
            words = ("job", "run", "--", "python", "-m", "experiments.quickstart", *SHORT)
            done = cluster.iris(*words, timeout=500)
            assert done.code == 0, done.text
            assert done.out.count(ending) == STEPS
        assert_same(summary(expected), summary(cluster.storage))


def test_what_cannot_be_run_is_told_in_words(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    _, err = run(tmp_path / "p", "--pages", str(empty), code=1)
    assert err.startswith(f"quickstart: error: no page below '{empty}': expected files named *.html")
    assert "Traceback" not in err
    assert not (tmp_path / "p").exists(), "it is refused before anything is made"
    code = "import sys; sys.modules['selectolax'] = None; from experiments.quickstart import main; main()"
    environment = {**os.environ, "FRAY_CLIENT": "local", "MARIN_PREFIX": str(tmp_path)}
    done = run_program([sys.executable, "-c", code], ROOT, environment, code=1)
    assert "needs the package 'selectolax" in done.stderr
    assert "`uv sync --extra quickstart` installs it" in done.stderr
