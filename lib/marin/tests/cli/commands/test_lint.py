import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.cli.deciding.lint import StepFacts, leaves, lint_steps
from support.marin.recorded_runs import Done

Marin = Callable[..., Done]

SCRIPT = """
import sys
from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path, versioned

print("hello from the script")
data = ExecutorStep(
    name="lint/data",
    fn=print,
    config={
        "source": versioned("gs://marin-us-central2/raw/x"),
        "workers": 8,
        "hf_token": "hf_abcdefghijklmnopqrstuvwxyz0123456789",
        "elsewhere": ["gs://marin-eu-west4/y"],
        "out": this_output_path("part"),
    },
)
clean = ExecutorStep(name="lint/clean", fn=print, config={"x": versioned(1), "y": output_path_of(data)})
if __name__ == "__main__":
    executor_main(steps=[clean])
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "prefix"))
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_values_that_do_not_count_or_name_a_region_are_found(script: str, marin: Marin, tmp_path: Path) -> None:
    done = marin("lint", "--json", script)
    assert done.code == 8
    assert [(item["rule"], item["step"], item["field"], item["value"]) for item in done.json] == [
        ("region-versioned", "lint/data", "source", '"gs://marin-us-central2/raw/x"'),
        ("unversioned", "lint/data", "workers", "8"),
        ("unversioned", "lint/data", "hf_token", '"[REDACTED]"'),
        ("region", "lint/data", "elsewhere.[0]", '"gs://marin-eu-west4/y"'),
        ("unversioned", "lint/data", "elsewhere.[0]", '"gs://marin-eu-west4/y"'),
    ]
    assert "InputName.hardcoded('raw/x')" in done.json[0]["advice"]
    assert not os.path.exists(tmp_path / "prefix"), "no storage is touched"


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part, max_size=3),
    max_leaves=15,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_every_value_that_does_not_count_is_found_once(config: dict[str, object]) -> None:
    found = lint_steps([StepFacts("s", {}, config)])
    assert len([item for item in found if item.rule == "unversioned"]) == (len(list(leaves(config))) if config else 0)
    assert lint_steps([StepFacts("s", {}, config)], ["*"]) == []


def test_findings_may_be_left_out_and_a_broken_script_is_an_error(script: str, marin: Marin, tmp_path: Path) -> None:
    ignored = ("--ignore", "workers", "--ignore", "lint/data:hf_*", "--ignore", "elsewhere*", "--ignore", "source")
    done = marin("lint", *ignored, script)
    assert (done.code, done.out) == (0, "")
    assert "0 finding(s) in 2 step(s)" in done.err
    assert marin("lint", str(tmp_path / "none.py")).code == 4
    bad = tmp_path / "bad.py"
    for text, code, said in (("import no_such", 3, "ModuleNotFoundError"), ("raise SystemExit(7)", 3, ""), ("", 0, "")):
        bad.write_text(text)
        done = marin("lint", str(bad))
        assert (done.code, said in done.err) == (code, True)
