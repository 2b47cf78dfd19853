"""Which packages and which Python a job gets, from what its folder says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import uv

from support.iris.embedded_cluster import IRIS, Cluster, Result
from support.iris.packages import make_wheel, other_python, write_package

pytestmark = pytest.mark.process

PROJECT = '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = [{dependencies}]\n'
WHERE = "import json, sys, {module} as m; print(json.dumps([m.V, m.__file__, sys.prefix]))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work" / "proj"
    made.mkdir(parents=True)
    return made


def run(cluster: Cluster, folder: Path, code: str, *options: str, **more: Any) -> Result:
    return cluster.iris("job", "run", *options, "--", "python", "-c", code, cwd=folder, **more)


def make_third(folder: Path) -> None:
    make_wheel(folder / "third-1.0-py3-none-any.whl", "third", "1.0", {"third.py": "V = 3\n"})


def test_a_project_without_a_lock_is_locked_for_the_job_and_stays_as_it_is(cluster: Cluster, folder: Path) -> None:
    make_third(folder)
    sources = '[tool.uv.sources]\nthird = { path = "third-1.0-py3-none-any.whl" }\n'
    (folder / "pyproject.toml").write_text(PROJECT.format(dependencies='"third"') + sources)
    ran = run(cluster, folder, WHERE.format(module="third"))
    assert ran.code == 0, ran.text
    value, path, _ = json.loads(ran.out)
    assert value == 3
    assert "/worker/envs/" in path
    assert "pyproject.toml was locked for this job" in ran.err
    assert sorted(os.listdir(folder)) == ["pyproject.toml", "third-1.0-py3-none-any.whl"]
    # The environment holds this project's packages, and nothing of whoever started the cluster.
    other = run(cluster, folder, "import grpc")
    assert (other.code, "No module named 'grpc'" in other.err) == (1, True), other.text


def test_requirements_and_what_they_name_by_path_also_for_a_grandchild(cluster: Cluster, folder: Path) -> None:
    write_package(folder.parent / "beside", "beside", "1.0", "V = 'beside'\n")
    make_third(folder)
    (folder / "requirements.txt").write_text("-e ../beside  # ours\n./third-1.0-py3-none-any.whl\n")
    code = "import beside, third, pathlib; print(beside.V, third.V, '/worker/envs/' in beside.__file__)"
    ran = run(cluster, folder, code)
    assert (ran.code, ran.out) == (0, "beside 3 True\n"), ran.text
    assert not (folder.parent / "beside" / "build-litter").exists()
    (folder.parent / "beside" / "python" / "beside.py").write_text("V = 'changed'\n")
    assert run(cluster, folder, code).out == "changed 3 True\n"
    for name, text in (
        ("sub/leaf.py", "import third; print('leaf', third.V)\n"),
        ("top/mid.sh", f"exec {IRIS} job run -- sh -c 'cd ../sub && {IRIS} job run -- python leaf.py'\n"),
    ):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    ran = cluster.iris("job", "run", "--workspace", str(folder), "--", "sh", "mid.sh", cwd=folder / "top")
    assert ran.code == 0, ran.text
    assert "leaf 3" in ran.out, ran.text


def test_a_plain_folder_uses_the_submitters_environment_by_name(cluster: Cluster, folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    subprocess.run([uv.find_uv_bin(), "venv", "-q", "--python", sys.executable, str(mine)], check=True)
    (site,) = (mine / "lib").glob("python3*/site-packages")
    (site / "only_mine.py").write_text("V = 'mine'\n")
    ran = run(cluster, folder, WHERE.format(module="only_mine"), env={"VIRTUAL_ENV": str(mine)})
    assert ran.code == 0, ran.text
    assert json.loads(ran.out)[::2] == ["mine", str(mine)]
    told = f"iris: no uv.lock, pyproject.toml or requirements.txt: using your environment {mine} (local cluster only)\n"
    assert told in ran.err, ran.text
    # Packages on top of it leave it as it is.
    make_third(tmp_path)
    wheel = (tmp_path / "third-1.0-py3-none-any.whl").as_uri()
    code = "import third, only_mine; print('both')"
    ran = run(cluster, folder, code, "--pip", f"third @ {wheel}", env={"VIRTUAL_ENV": str(mine)})
    assert (ran.code, ran.out) == (0, "both\n"), ran.text
    assert not (site / "third.py").exists()


@pytest.mark.skipif(other_python("3.12") is None, reason="LOUD: no Python 3.12 on this machine")
def test_commands_run_on_the_python_that_the_folder_asks_for(cluster: Cluster, folder: Path) -> None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    assert run(cluster, folder, code).out == f"{sys.version_info[0]}.{sys.version_info[1]}\n"
    (folder / ".python-version").write_text("3.12\n")
    assert run(cluster, folder, code).out == "3.12\n"
    (folder / ".python-version").write_text("3.99\n")
    (folder / "requirements.txt").write_text("")
    ran = run(cluster, folder, "pass")
    assert ran.code != 0, ran.text
    assert "needs Python 3.99, but this worker has only" in ran.err, ran.text
    assert ".".join(map(str, sys.version_info[:3])) in ran.err
    for name in (".python-version", "requirements.txt"):
        (folder / name).unlink()
    (folder / "pyproject.toml").write_text(PROJECT.format(dependencies="").replace(">=3.11", "==3.12.*"))
    assert run(cluster, folder, code).out == "3.12\n"
