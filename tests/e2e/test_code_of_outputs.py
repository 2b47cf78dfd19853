"""Each output's record names the code that made it: commits, a dirty tree, clones, a job on Iris."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.iris.embedded_cluster import Cluster

pytestmark = pytest.mark.process

STUDY = """\
import sys
from marin.execution import ExecutorStep, executor_main, this_output_path, versioned
from mypkg.count import count

n = int(sys.argv.pop(1))
executor_main(steps=[ExecutorStep(name="count", fn=count, config={"n": versioned(n), "path": this_output_path()})])
"""
COUNT = """\
from mypkg import words

def count(config, password: str = "zebra"):
    with open(config["path"] + "/count", "w") as file:
        file.write(str(words.WORDS * config["n"]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with a script and a package, committed."""
    root = tmp_path / "project"
    (root / "mypkg").mkdir(parents=True)
    for name, text in {"study.py": STUDY, "mypkg/count.py": COUNT, "mypkg/words.py": "WORDS = 2\n"}.items():
        (root / name).write_text(text)
    (root / "mypkg/__init__.py").touch()
    (root / ".gitignore").write_text("__pycache__\n")
    git(root, "init", "--quiet", "--initial-branch", "main")
    commit(root)
    return root


def git(root: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def commit(root: Path) -> str:
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "work")
    return git(root, "rev-parse", "HEAD")


def study(root: Path, n: int, *words: str, code: int = 0) -> str:
    command = [sys.executable, "study.py", str(n), *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def shown(prefix: Path, name: str) -> Any:
    return json.loads(marin("show", name, "--prefix", str(prefix), "--json"))


def marin(*words: str) -> str:
    command = [sys.executable, "-m", "marin.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def made_by(prefix: Path, n: int) -> Any:
    """The code of the run that made the output for `n`."""
    for output in prefix.glob("count-*"):
        step = shown(prefix, str(output))
        if step["config"]["n"] == n:
            return step["made_by"]["code"]
    raise AssertionError(n)


def test_each_output_names_the_code_that_made_it(
    project: Path, tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "prefix"
    monkeypatch.setenv("MARIN_PREFIX", str(prefix))
    first = git(project, "rev-parse", "HEAD")
    study(project, 1)
    (project / "mypkg/count.py").write_text(COUNT.replace("str(", "repr("))
    second = commit(project)
    study(project, 1)
    study(project, 2)
    assert [made_by(prefix, n)["commit"] for n in (1, 2)] == [first, second], "the cached run leaves the first's"

    (project / "mypkg/words.py").write_text("WORDS = 3\n")
    study(project, 3)
    dirty = made_by(prefix, 3)
    assert (dirty["commit"], dirty["branch"], dirty["dirty"]) == (second, "main", True)
    texts = json.loads((prefix / f"experiments/code/{dirty['texts']}.json").read_text())
    assert "-WORDS = 2\n+WORDS = 3\n" in texts["diff"]

    # The helper is in another module than the step's function.
    assert "source of mypkg/words.py: WORDS: " in study(project, 1)
    refused = study(project, 1, "--strict", code=1)
    assert "strict: 1 output(s)" in refused
    assert "source of mypkg/words.py: WORDS: " in refused

    assert "-WORDS = 2\n              +WORDS = 3\n" in study(project, 1, "--explain")
    assert "zebra" not in "".join(path.read_text() for path in prefix.glob("experiments/code/*.json"))
    packages = json.loads((prefix / f"experiments/code/{dirty['packages']}.json").read_text())
    assert packages["fsspec"] == importlib.metadata.version("fsspec")

    runs = sorted(path.name.removesuffix(".events.jsonl") for path in prefix.glob("experiments/*.jsonl"))
    [first_run, second_run, *_] = sorted(runs, key=lambda name: name.split("-")[2])
    difference = marin("diff", first_run, second_run, "--prefix", str(prefix))
    assert f"committed changes: git diff {first} {second}\n" in difference
    assert "--- mypkg/count.py: count\n+++ mypkg/count.py: count\n" in difference
    assert "+        file.write(repr(words" in difference

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(project), str(clone))
    git(clone, "checkout", "--quiet", "--detach", first)
    study(clone, 4)
    code = made_by(prefix, 4)
    assert (code["commit"], code["branch"], code["dirty"]) == (first, None, False)

    # The job has no checkout, and another process made the workspace's bundle.
    command = [sys.executable, "study.py", "5", "--prefix", str(prefix)]
    ran = cluster.iris("job", "run", "--", *command, cwd=project)
    assert ran.code == 0, ran.text
    assert made_by(prefix, 5) == dirty
