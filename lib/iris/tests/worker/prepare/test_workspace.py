import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from iris.domain.states import FailureKind
from iris.worker.prepare.workspace import Workspace, read_workspace, tree_digest, write_site
from iris.worker.types import PreparationFailed


def bundle(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def read(root: Path, files: dict[str, str]) -> Workspace:
    found = read_workspace(bundle(root, files))
    assert found is not None
    return found


ROOT = """
[project]
name = "shop"
version = "1.5"
dependencies = ["till", "six>=1"]
[project.optional-dependencies]
gpu = ["jax"]
tpu = ["jax"]
[project.scripts]
shop = "shop.main:run"
bare = "shop.tools"
inner = "shop.main:Class.method [extra]"
[project.entry-points.plugins]
one = "shop.plugins:One"
[tool.uv.workspace]
members = ["lib/*", "lib/a", "tools"]
exclude = ["lib/x*"]
"""
FILES = {
    "pyproject.toml": ROOT,
    "shop/__init__.py": "",
    "shop/main.py": "import sys\ndef run():\n    print('ran', sys.argv, sys.path[0] == '')\n    return 3\n",
    "lib/a/pyproject.toml": "[project]\nname = 'My.Till'\n[project.optional-dependencies]\ntpu = []\ncash = []\n",
    "lib/a/src/till.py": "",
    "lib/b/pyproject.toml": "[tool.other]\n",
    "lib/c/README": "",
    "lib/xx/pyproject.toml": "[project]\nname = 'excluded'\n",
    "lib/file": "",
    "tools/pyproject.toml": "[project]\nversion = '2'\n",
}


class TestReading:
    def test_a_folder_is_a_project_by_its_pyproject_and_has_members_by_their_projects(self, tmp_path: Path) -> None:
        assert read_workspace(bundle(tmp_path, {"a.py": ""})) is None
        found = read(tmp_path, {"pyproject.toml": "[tool.uv]\npackage = false\n", "uv.lock": ""})
        assert (found.members, found.extras, found.has_lock) == ((), [], True)
        assert found.python_path() == [str(tmp_path)]
        for name, text in (("pyproject.toml", "no ["), ("lib/a/pyproject.toml", "é = ")):
            with pytest.raises(PreparationFailed, match=f"^{name} of the bundle cannot be read: ") as refused:
                read(tmp_path, {**FILES, name: text})
            assert refused.value.kind is FailureKind.ENVIRONMENT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "[project.scripts]\n'../../../etc/cron.hourly/x' = 'a:b'",
            "'../../../etc/cron.hourly/x' is not valid as a name",
        ),
        ("[project.entry-points.console_scripts]\n'/etc/x' = 'a:b'", "'/etc/x' is not valid as a name"),
        ("name = '../../x'", "'../../x' is not valid as a name"),
        ("version = '1/../../../x'", "'1/../../../x' is not valid as a name, version or script"),
        ("[tool.uv.workspace]\nmembers = ['a/../../*/bundles/*']", "member 'a/../../*/bundles/*' leads out"),
        ("[tool.uv.workspace]\nmembers = ['/root/*']", "member '/root/*' leads out of the job's files"),
    ],
)
def test_a_project_that_leads_out_of_its_bundle_is_refused_and_nothing_is_written(
    tmp_path: Path, text: str, why: str
) -> None:
    """The worker, which may be root, would write scripts of these names and read these files."""
    with pytest.raises(PreparationFailed, match=re.escape(why)) as refused:
        read(tmp_path, {"pyproject.toml": f"[project]\n{text}\n"})
    assert refused.value.kind is FailureKind.ENVIRONMENT


LOCK = """
source = { registry = "https://packages.example/simple" }
source = { editable = "lib/a" }
source = { directory = "vendor/own" }
source = { path = "vendor/x.whl" }
source = { registry = "wheels" }
"""


class TestTheLock:
    def workspace(self, root: Path) -> Workspace:
        extra = {"uv.lock": LOCK, "vendor/own/a.py": "1", "vendor/x.whl": "wheel", "wheels/w": ""}
        return read(root, {**FILES, **extra})

    def test_its_fingerprint_is_of_all_that_decides_what_is_installed(self, tmp_path: Path) -> None:
        workspace = self.workspace(tmp_path)
        assert workspace.local_sources() == [tmp_path / "vendor/own", tmp_path / "vendor/x.whl", tmp_path / "wheels"]
        seen = [workspace.lock_fingerprint()]
        assert workspace.lock_fingerprint() == seen[0]
        (tmp_path / "shop/main.py").write_text("changed")
        (tmp_path / "lib/a/src/till.py").write_text("changed")
        assert workspace.lock_fingerprint() == seen[0], "the bundle's own code is not installed"
        for name, text in (
            ("uv.lock", LOCK + "# more"),
            ("uv.toml", "index = 1"),
            ("vendor/own/a.py", "2"),
            ("vendor/x.whl", "other"),
            ("wheels/new", ""),
        ):
            (tmp_path / name).write_text(text)
            seen.append(workspace.lock_fingerprint())
        settings = FILES["pyproject.toml"] + '\n[tool.uv.sources]\nsix = { index = "own" }\n'
        (tmp_path / "pyproject.toml").write_text(settings)
        again = read_workspace(tmp_path)
        assert again is not None
        seen.append(again.lock_fingerprint())
        assert len(set(seen)) == len(seen)


def test_a_digest_is_of_names_contents_and_links(tmp_path: Path) -> None:
    assert tree_digest(tmp_path / "none") == ""
    tree = bundle(tmp_path / "tree", {"a": "1", "b/c": "2"})
    seen = {tree_digest(tree), tree_digest(tree / "a"), tree_digest(tree / "b")}
    (tree / "a").rename(tree / "d")
    seen.add(tree_digest(tree))
    (tree / "b/c").write_text("3")
    seen.add(tree_digest(tree))
    (tree / "link").symlink_to("d")
    seen.add(tree_digest(tree))
    (tree / "link").unlink()
    (tree / "link").symlink_to("b/c")
    seen.add(tree_digest(tree))
    (tree / "link").unlink()
    (tree / "empty").mkdir()
    assert tree_digest(tree) in seen, "an empty folder is nothing"
    assert len(seen) == 7
    assert tree_digest(tree / "d") == tree_digest(bundle(tmp_path, {"other": "1"}) / "other")


class TestTheSite:
    def test_members_count_as_installed_and_a_site_that_is_there_is_left(self, tmp_path: Path) -> None:
        workspace = read(tmp_path / "bundle", FILES)
        site = tmp_path / "site"
        write_site(workspace, site)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "site"]
        found = {item.metadata["Name"]: item for item in importlib.metadata.distributions(path=[str(site)])}
        assert {name: item.version for name, item in found.items()} == {"shop": "1.5", "My.Till": "0", "tools": "2"}
        assert found["shop"].requires == ["till", "six>=1"]
        assert {(item.group, item.name, item.value) for item in found["shop"].entry_points} == {
            ("plugins", "one", "shop.plugins:One"),
            ("console_scripts", "shop", "shop.main:run"),
            ("console_scripts", "bare", "shop.tools"),
            ("console_scripts", "inner", "shop.main:Class.method [extra]"),
        }
        assert (site / "my_till-0.dist-info" / "METADATA").is_file()
        with pytest.raises(OSError, match="not empty"):
            write_site(workspace, site)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "site"]

    def test_its_commands_run_what_they_name_with_their_arguments(self, tmp_path: Path) -> None:
        more = {
            "shop/tools.py": "def main():\n    print('main of tools')\n",
            "shop/main.py": FILES["shop/main.py"] + "class Class:\n    def method():\n        print('inner')\n",
        }
        workspace = read(tmp_path / "bundle", {**FILES, **more})
        write_site(workspace, tmp_path / "site")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "python").symlink_to(sys.executable)
        env = {
            "PATH": f"{tmp_path / 'site/bin'}:{tmp_path / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(tmp_path / "bundle"),
        }

        def run(*words: str) -> tuple[int, str]:
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

        assert run("shop", "a b", "$HOME") == (3, "ran ['shop', 'a b', '$HOME'] False\n")
        assert run("bare") == (0, "main of tools\n")
        assert run("inner") == (0, "inner\n")
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "site/bin").iterdir()} == {0o555}
