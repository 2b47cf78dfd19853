import os
import sys
from pathlib import Path

import pytest

from marin.migrate.__main__ import main
from marin.migrate.check import Finding, check_file, check_paths
from rigging.errors import NotFound

REPOSITORY = Path(__file__).resolve().parents[4]


def check(tmp_path: Path, *lines: str) -> list[Finding]:
    script = tmp_path / "script.py"
    script.write_text("\n".join(lines) + "\n")
    return check_file(script)


HEAD = "from marin.execution import ExecutorStep, output_path_of, this_output_path, versioned; import os"


@pytest.mark.parametrize(
    ("line", "problem", "instead"),
    [
        ("from fray.v2 import ResourceConfig", "fray has no v2", "import from fray"),
        ("import marin.processing.tokenize", "marin has no processing", "bring that package along"),
        ("from marin.core.runtime import cached_or_construct_output", "marin has no core", "disk_cache"),
        ("from marin.utils import fsspec_rm", "marin.utils has no fsspec_rm", "url_to_fs"),
        ("from marin.execution import ensure_versiond", "it has ensure_versioned", "docs/compatibility.md"),
        ("from marin.execution.sweep import *; SweepTarget('a')", "'config' is missing", "reference"),
        ("from fray import *; ResourceConfig.nothing()", "fray.ResourceConfig has no nothing", "docs"),
        ("import marin.execution.executor as ex; ex.nothing()", "marin.execution.executor has no nothing", "docs"),
        ("import rigging.filesystem; rigging.filesystem.prefix_join('a', 'b')", "has no prefix_join", "os.path.join"),
        ("ExecutorStep(name='a', fn=None, config=1, max_retries=3)", "no argument 'max_retries'", "reference"),
        ("ExecutorStep(name='a', fn=None)", "'config' is missing", "reference"),
        ("versioned(1, 2)", "2 arguments by position; it takes 1: value", "reference"),
        ("ExecutorStep(name='a//b', fn=None, config=1)", "step name 'a//b' has an empty part", "single '/'"),
        ("versioned({'a', 'b'})", "versioned() of a set", "sorted"),
        ("raw = ExecutorStep('a', None, 1); print(f'{raw}/x')", "raw has no text yet", "step / 'x'"),
        ("raw = ExecutorStep('a', None, 1); print('%s/x' % raw)", "raw has no text yet", "step / 'x'"),
        ("raw = ExecutorStep('a', None, 1); print('%s/%d' % (raw, 1))", "raw has no text yet", "step / 'x'"),
        ("raw = ExecutorStep('a', None, 1); print('{}/x'.format(raw))", "raw has no text yet", "step / 'x'"),
        ("raw = ExecutorStep('a', None, 1); print('{a}'.format(a=raw))", "raw has no text yet", "step / 'x'"),
        ("import experiments.llama", "experiments is not installed here", "bring that directory along"),
        ("os.path.join(this_output_path(), 'x')", "this_output_path() has no text yet", 'this_output_path("x")'),
        ("raw = output_path_of(step) + '/x'", "output_path_of(step) has no text", "output_path_of(step, 'x')"),
        ("x = (", "not Python", "correct it"),
        ("import a_package_of_nobody.x", "a_package_of_nobody is not installed here", "uv pip install"),
        ("def f():\n    import levanter.main", "levanter is not installed here", "beside this project"),
    ],
)
def test_what_will_not_work_is_told_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, problem: str, instead: str
) -> None:
    # Other tests of this process may have our own experiments, from the root of the repository.
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not Path(place, "experiments").is_dir()])
    for name in [name for name in sys.modules if name.partition(".")[0] == "experiments"]:
        monkeypatch.delitem(sys.modules, name)
    findings = check(tmp_path, HEAD, "", line)
    assert len(findings) == 1, findings
    assert findings[0].line == 3 + line.count("\n")
    assert problem in findings[0].problem
    assert instead in findings[0].instead


@pytest.mark.parametrize(
    "line",
    [
        "from fray.current_client import current_client, set_current_client; set_current_client(1)",
        "from fray import current_client; current_client()",
        "ExecutorStep(*args, **kwargs)",
        "raw = ExecutorStep('a', None, 1); raw / 'x'; raw = 'text'; raw + '/x'",
        "from .siblings import anything",
        "from numpy import nothing_of_the_kind",
        "try:\n    import levanter, fray.v2\nexcept ImportError:\n    levanter = None",
        "import typing\nif typing.TYPE_CHECKING:\n    from fray.v2 import x",
        "from rigging.distributed_lock import lease\ndef f(lease):\n    return lease.anything",
        "name = 'a'; ExecutorStep(name, print, versioned([1]), override_output_path='a/b/')",
    ],
)
def test_what_works_or_is_not_known_is_not_told(tmp_path: Path, line: str) -> None:
    assert check(tmp_path, HEAD, line) == []


def test_directories_are_read_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.py", "deep/b.py", "notes.txt", ".hidden/c.py", "__pycache__/d.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("import fray.v2\n")
    assert main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"{tmp_path}/a.py:1: fray has no v2; import from fray" in out
    assert f"{tmp_path}/deep/b.py:1: " in out
    assert out.endswith("2 file(s), 2 line(s) that will not work here\n")
    assert main(["check", str(tmp_path / "notes.txt"), str(tmp_path / "deep")]) == 1
    assert main(["check", str(tmp_path / "missing")]) == 2
    assert "no such file" in capsys.readouterr().err
    with pytest.raises(NotFound):
        check_paths([str(tmp_path / "missing")])


def test_our_own_experiments_pass() -> None:
    files, findings = check_paths([str(REPOSITORY / "experiments"), str(REPOSITORY / "tests" / "compatibility")])
    assert files >= 10
    # The fakes of the tests are installed; the folder that they are in is beside the scripts, and has their name.
    # The examples need packages of their own.
    expected = ("support.", "polars ", "tensorboard", "wandb ")
    assert [found for found in findings if not found.problem.startswith(expected)] == []


def test_what_cannot_be_read_does_not_hide_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a_deep.py").write_text("x = " + "+".join(["1"] * 20_000))
    (tmp_path / "a_signs.py").write_text("x = " + "-" * 200_000 + "1")
    (tmp_path / "b_link.py").symlink_to("nowhere.py")
    (tmp_path / "c_circle.py").symlink_to("c_circle.py")
    os.mkfifo(tmp_path / "d_pipe.py")
    (tmp_path / "e.py").write_text("import fray.v2\n")
    assert main(["check", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "a_deep.py:1: an expression is nested too deeply to parse",
        "a_signs.py:1: an expression is nested too deeply to parse",
        "b_link.py:1: it cannot be read: No such file or directory",
        "c_circle.py:1: it cannot be read: Too many levels of symbolic links",
        "e.py:1: fray has no v2",
        "5 file(s), 5 line(s) that will not work here",
    ]


def test_what_is_no_script_is_refused_and_none_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')", "raise SystemExit") == []
    assert not (tmp_path / "ran").exists()
    notebook = tmp_path / "llama.ipynb"
    notebook.write_text('{"cells": [{"source": ["import fray.v2"]}]}')
    (finding,) = check_file(notebook)
    assert finding.problem == "notebooks are not supported"
    assert "nbconvert" in finding.instead
    os.mkfifo(tmp_path / "pipe.py")
    assert main(["check", str(tmp_path / "pipe.py")]) == 2
    assert "pipe.py: it is neither a file nor a directory; give a script" in capsys.readouterr().err
    assert main(["check", ""]) == 2
    assert "a path is empty; give a script" in capsys.readouterr().err


def test_modules_beside_a_script_are_its_own_and_those_left_behind_are_told(tmp_path: Path) -> None:
    for package in ("lib/marin/processing", "src/levanter"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("")
    lines = ("import levanter", "from marin.processing import x")
    experiments = tmp_path / "experiments"
    experiments.mkdir()
    assert [finding.line for finding in check(experiments, *lines)] == [2]
    (tmp_path / "marin").symlink_to(tmp_path / "lib" / "marin")
    assert check(experiments, *lines) == []
    (experiments / "llama.py").write_text("")
    (missing,) = check(experiments, "from experiments.llama import a", "from experiments.defaults import b")
    assert (missing.line, missing.problem) == (2, "experiments.defaults is not beside this script")
