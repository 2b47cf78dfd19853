"""Which packages and which Python a job gets, from what its folder says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iris.testing.packages import make_wheel, other_python, serve_index, write_index, write_package

pytestmark = pytest.mark.e2e

PROJECT = '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = [{dependencies}]\n'
WHERE = "import json, sys, {module} as m; print(json.dumps([m.V, m.__file__, sys.prefix]))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work" / "proj"
    made.mkdir(parents=True)
    return made


def run(cluster, folder: Path, code: str, *options: str, **more):
    return cluster.iris("job", "run", *options, "--", "python", "-c", code, cwd=folder, **more)


def test_a_project_without_a_lock_is_locked_for_the_job_and_stays_as_it_is(cluster, folder):
    make_wheel(folder / "vendor" / "third-1.0-py3-none-any.whl", "third", "1.0", {"third.py": "V = 3\n"})
    sources = '[tool.uv.sources]\nthird = { path = "vendor/third-1.0-py3-none-any.whl" }\n'
    (folder / "pyproject.toml").write_text(PROJECT.format(dependencies='"third"') + sources)
    ran = run(cluster, folder, WHERE.format(module="third"))
    assert ran.code == 0, ran.text
    value, path, _ = json.loads(ran.out)
    assert value == 3
    assert "/worker/envs/" in path
    assert "pyproject.toml was locked for this job" in ran.err
    assert sorted(os.listdir(folder)) == ["pyproject.toml", "vendor"]
    # The environment holds this project's packages, and nothing of whoever started the cluster.
    other = run(cluster, folder, "import grpc")
    assert (other.code, "No module named 'grpc'" in other.err) == (1, True), other.text


def test_a_project_that_cannot_be_locked_is_refused_in_uvs_words(cluster, folder):
    (folder / "pyproject.toml").write_text(PROJECT.format(dependencies='"no-such-package-of-marin"'))
    env = {"UV_OFFLINE": "1"}
    refused = run(cluster, folder, "pass", env=env)
    assert refused.code == 3, refused.text
    assert "cannot be locked (uv lock)" in refused.err
    assert "no-such-package-of-marin" in refused.err


def test_requirements_are_installed_with_what_they_name_by_path(cluster, folder):
    write_package(folder.parent / "beside", "beside", "1.0", "V = 'beside'\n")
    make_wheel(folder / "third-1.0-py3-none-any.whl", "third", "1.0", {"third.py": "V = 3\n"})
    (folder / "requirements.txt").write_text("-e ../beside  # ours\n./third-1.0-py3-none-any.whl\n")
    code = "import beside, third, pathlib; print(beside.V, third.V, '/worker/envs/' in beside.__file__)"
    for _ in range(2):
        ran = run(cluster, folder, code)
        assert (ran.code, ran.out) == (0, "beside 3 True\n"), ran.text
    assert not (folder.parent / "beside" / "build-litter").exists()
    (folder.parent / "beside" / "python" / "beside.py").write_text("V = 'changed'\n")
    assert run(cluster, folder, code).out == "changed 3 True\n"


@pytest.mark.parametrize("entry", ['{ path = "../mylib" }', '{ path = "../mylib", editable = true }'])
@pytest.mark.parametrize("locked", [True, False])
def test_a_library_beside_the_project_goes_along(cluster, folder, entry, locked):
    write_package(folder.parent / "mylib", "mylib", "1.0", "V = 'mine'\n")
    text = PROJECT.format(dependencies='"mylib"') + f"[tool.uv.sources]\nmylib = {entry}\n"
    (folder / "pyproject.toml").write_text(text)
    if locked:
        import uv

        subprocess.run([uv.find_uv_bin(), "lock", "-q", "--offline"], cwd=folder, check=True)
    (folder / "sub").mkdir()
    ran = cluster.iris("job", "run", "--", "python", "-c", WHERE.format(module="mylib"), cwd=folder / "sub")
    assert ran.code == 0, ran.text
    assert json.loads(ran.out)[0] == "mine"


def test_a_library_that_cannot_go_along_is_refused_by_name(cluster, folder):
    for path in ("../missing", "~/mylib"):
        (folder / "pyproject.toml").write_text(
            PROJECT.format(dependencies='"mylib"') + f'[tool.uv.sources]\nmylib = {{ path = "{path}" }}\n'
        )
        refused = run(cluster, folder, "pass")
        assert refused.code == 3, refused.text
        assert f"mylib in pyproject.toml is at '{path}'" in refused.err, refused.text


def test_a_plain_folder_uses_the_submitters_environment_by_name(cluster, folder, tmp_path):
    import uv

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
    make_wheel(tmp_path / "wheels" / "extra_one-1.0-py3-none-any.whl", "extra_one", "1.0", {"extra_one.py": ""})
    wheel = (tmp_path / "wheels" / "extra_one-1.0-py3-none-any.whl").as_uri()
    code = "import extra_one, only_mine; print('both')"
    ran = run(cluster, folder, code, "--pip", f"extra_one @ {wheel}", env={"VIRTUAL_ENV": str(mine)})
    assert (ran.code, ran.out) == (0, "both\n"), ran.text
    assert not (site / "extra_one.py").exists()


def test_an_extra_that_is_none_is_refused_with_those_there_are(cluster, folder):
    (folder / "pyproject.toml").write_text(
        PROJECT.format(dependencies="") + "[project.optional-dependencies]\ngpu = []\ncpu = []\n"
    )
    refused = run(cluster, folder, "pass", "--extra", "gpuu")
    assert refused.code == 3, refused.text
    assert "extra 'gpuu' is not defined by" in refused.err
    assert "its extras: cpu, gpu" in refused.err


def test_a_child_of_a_child_has_the_workspace_and_the_environment_of_its_parent(cluster, folder):
    make_wheel(folder / "third-1.0-py3-none-any.whl", "third", "1.0", {"third.py": "V = 3\n"})
    (folder / "requirements.txt").write_text("./third-1.0-py3-none-any.whl\n")
    iris = Path(sys.executable).with_name("iris")
    (folder / "sub").mkdir()
    (folder / "sub" / "leaf.py").write_text("import third; print('leaf', third.V)\n")
    command = f"cd ../sub && {iris} job run -- python leaf.py"
    (folder / "top").mkdir()
    (folder / "top" / "mid.sh").write_text(f"exec {iris} job run -- sh -c '{command}'\n")
    ran = cluster.iris("job", "run", "--workspace", str(folder), "--", "sh", "mid.sh", cwd=folder / "top")
    assert ran.code == 0, ran.text
    assert "leaf 3" in ran.out, ran.text


def test_a_warm_cache_is_enough_when_the_index_is_gone(cluster, folder, tmp_path):
    make_wheel(tmp_path / "w" / "pack_a-1.0-py3-none-any.whl", "pack_a", "1.0", {"pack_a.py": "V = 1\n"})
    write_index(tmp_path / "index", {"pack-a": tmp_path / "w" / "pack_a-1.0-py3-none-any.whl"})
    (folder / "requirements.txt").write_text("pack-a\n")
    project = folder.parent / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT.format(dependencies='"pack-a"'))
    words = ("--", "python", "-c", "import pack_a; print(pack_a.V)")
    (folder / "a.py").write_text("import pack_a; print(pack_a.V)\n")
    # Of a worker with a cache of its own, so that the second environment is built and not found.
    with serve_index(tmp_path / "index") as port:
        env = {"UV_INDEX_URL": f"http://127.0.0.1:{port}/simple", "UV_HTTP_RETRIES": "0"}
        cluster.iris("cluster", "stop", "--force")
        ran = cluster.iris("job", "run", "--", "python", "a.py", cwd=folder, env=env)
        assert (ran.code, ran.out) == (0, "1\n"), ran.text
        assert cluster.iris("job", "run", *words, cwd=project, env=env).out == "1\n"
        wrong = cluster.iris("job", "run", "--pip", "pack-a==7", "--", "true", cwd=folder, env=env)
        assert "no version of pack-a==7" in wrong.err, wrong.text
        assert "the newest there is: pack-a==1.0" in wrong.err, wrong.text
    (folder / "requirements.txt").write_text("pack-a  # again\n")
    ran = cluster.iris("job", "run", "--", "python", "a.py", cwd=folder, env=env)
    assert (ran.code, ran.out) == (0, "1\n"), ran.text
    (project / "pyproject.toml").write_text(PROJECT.format(dependencies='"pack-a>=1"'))
    ran = cluster.iris("job", "run", *words, cwd=project, env=env)
    assert (ran.code, ran.out) == (0, "1\n"), ran.text
    (folder / "requirements.txt").write_text("")
    ran = cluster.iris("job", "run", "--pip", "pack-a", "--", "python", "a.py", cwd=folder, env=env)
    assert (ran.code, ran.out) == (0, "1\n"), ran.text
    cluster.iris("cluster", "stop", "--force")


@pytest.mark.skipif(other_python("3.12") is None, reason="LOUD: no Python 3.12 on this machine")
def test_commands_run_on_the_python_that_the_folder_asks_for(cluster, folder):
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert run(cluster, folder, code).out == f"{own}\n"
    (folder / ".python-version").write_text("3.12\n")
    ran = run(cluster, folder, code)
    assert (ran.code, ran.out) == (0, "3.12\n"), ran.text
    (folder / ".python-version").unlink()
    (folder / "pyproject.toml").write_text(PROJECT.format(dependencies="").replace(">=3.11", "==3.12.*"))
    ran = run(cluster, folder, code)
    assert (ran.code, ran.out) == (0, "3.12\n"), ran.text


def test_a_python_that_is_nowhere_is_refused_with_both_versions(cluster, folder):
    (folder / ".python-version").write_text("3.99\n")
    (folder / "requirements.txt").write_text("")
    ran = run(cluster, folder, "pass")
    assert ran.code != 0, ran.text
    assert "needs Python 3.99, and this worker has" in ran.err, ran.text
    assert ".".join(map(str, sys.version_info[:3])) in ran.err
