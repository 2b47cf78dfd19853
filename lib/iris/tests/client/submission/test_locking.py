import dataclasses
import os
import stat
from pathlib import Path

import pytest

from iris.client.submission import locking
from iris.client.submission.bundle import gather_files
from iris.client.submission.locking import Uv, lock_project
from iris.client.submission.project import Project, read_project
from rigging.errors import InvalidRequest

# Instead of uv: notes its arguments, its variables and the files it sees, and makes or refuses the lock.
FAKE_UV = """#!/bin/sh
echo "$@" >> "$NOTES/arguments"
env | cut -d= -f1 | sort > "$NOTES/variables"
pwd > "$NOTES/cwd"
cat uv.lock > "$NOTES/former" 2>/dev/null
cd "$NOTES/../scratch"/*
find . -not -type d | sort > "$NOTES/files"
find . -type l | sort > "$NOTES/links"
find . -type d | sort > "$NOTES/folders"
cd "$OLDPWD"
if [ -e "$NOTES/fail" ]; then
  cat "$NOTES/fail" >&2
  [ -e "$NOTES/offline" ] && [ "$2" = --offline ] || exit 2
fi
echo "locked $(cat "$NOTES/count" 2>/dev/null)" > uv.lock
"""


class FakeUv:
    def __init__(self, place: Path) -> None:
        self.notes = place / "notes"
        self.notes.mkdir()
        (place / "scratch").mkdir()
        self.program = place / "uv"
        self.program.write_text(FAKE_UV)
        self.program.chmod(0o755)
        self.tool = Uv(str(self.program), scratch=place / "scratch")
        self.environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "NOTES": str(self.notes),
            "IRIS_STATE_DIR": str(place / "state"),
        }

    def __getitem__(self, name: str) -> list[str]:
        path = self.notes / name
        return path.read_text().splitlines() if path.exists() else []

    def write(self, name: str, text: str) -> None:
        (self.notes / name).write_text(text)


@pytest.fixture
def uv(tmp_path: Path) -> FakeUv:
    return FakeUv(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src/a.py").write_text("a")
    (root / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    (root / ".python-version").write_text("3.11\n")
    return read_project(root)


def files(uv: FakeUv) -> list[str]:
    return [name.removeprefix("./") for name in uv["files"]]


def test_the_lock_is_kept_outside_of_the_project_and_used_again(uv: FakeUv, project: Project) -> None:
    uv.write("count", "1")
    kept = lock_project(project, "", {}, "", uv.environ, uv.tool)
    assert kept.read_text() == "locked 1\n"
    assert kept.is_relative_to(uv.environ["IRIS_STATE_DIR"])
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert uv["former"] == []
    assert sorted(path.name for path in project.root.iterdir()) == [".python-version", "pyproject.toml", "src"]
    uv.write("count", "2")
    assert lock_project(project, "", {}, "", uv.environ, uv.tool) == kept
    assert uv["former"] == ["locked 1"], "versions stay what they were as far as they can"
    assert kept.read_text() == "locked 2\n"
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    assert not any((Path(uv.environ["NOTES"]).parent / "scratch").iterdir()), "the copy is gone"


def test_each_project_has_its_own_lock(uv: FakeUv, project: Project, tmp_path: Path) -> None:
    other = dataclasses.replace(project, root=project.root.rename(tmp_path / "other"))
    project.root.mkdir()
    (project.root / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    first, second = (lock_project(found, "", {}, "", uv.environ, uv.tool) for found in (project, other))
    assert first != second


def test_only_what_tells_the_packages_is_copied_unless_something_must_be_built(uv: FakeUv, project: Project) -> None:
    lock_project(project, "", {}, "", uv.environ, uv.tool)
    assert files(uv) == [".python-version", "pyproject.toml"]
    lock_project(dataclasses.replace(project, builds=True), "", {}, "", uv.environ, uv.tool)
    assert {"src/a.py", "pyproject.toml"} <= set(files(uv))


def test_the_copy_is_laid_out_as_the_bundle(uv: FakeUv, project: Project, tmp_path: Path) -> None:
    beside = tmp_path / "mylib"
    beside.mkdir()
    (beside / "pyproject.toml").write_text("[project]\nname = 'mylib'\nversion = '1'\n")
    (beside / "code.py").write_text("x")
    (tmp_path / "bare").mkdir()
    wheel = tmp_path / "w.whl"
    wheel.write_text("wheel")
    os.symlink("pyproject.toml", beside / "setup.cfg")
    places = {"mylib": beside, "bare": tmp_path / "bare", "w.whl": wheel}
    lock_project(project, "main/project", places, "", uv.environ, uv.tool)
    assert set(files(uv)) >= {
        "main/project/pyproject.toml", "main/project/.python-version", "mylib/pyproject.toml", "mylib/setup.cfg",
        "w.whl",
    }  # fmt: skip
    assert "mylib/code.py" not in files(uv)
    assert uv["cwd"][0].endswith("/main/project")
    assert uv["links"] == ["./mylib/setup.cfg"]
    assert "./bare" in uv["folders"], "without a file of its own it is still to be found"


def test_what_vanishes_meanwhile_is_not_copied(uv: FakeUv, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gather_files(project.root, "", {})
    (project.root / ".python-version").unlink()
    monkeypatch.setattr(locking, "gather_files", lambda *args: found)
    lock_project(project, "", {}, "", uv.environ, uv.tool)
    assert files(uv) == ["pyproject.toml"]


def test_uv_is_told_the_interpreter_and_nothing_that_would_make_it_lock_something_else(
    uv: FakeUv, project: Project
) -> None:
    wrong = dict.fromkeys(("UV_PROJECT", "UV_FROZEN", "UV_LOCKED", "UV_PYTHON", "VIRTUAL_ENV"), "x")
    lock_project(project, "", {}, "", {**uv.environ, **wrong, "UV_INDEX_URL": "x"}, uv.tool)
    assert not set(wrong) & set(uv["variables"])
    assert {"UV_INDEX_URL", "UV_NO_PROGRESS", "NO_COLOR"} <= set(uv["variables"])
    lock_project(project, "", {}, "/usr/bin/py", uv.environ, uv.tool)
    assert uv["arguments"] == ["lock", "lock --python /usr/bin/py"]


def test_uvs_own_words_say_why_it_failed_with_the_users_path(uv: FakeUv, project: Project) -> None:
    uv.write("fail", "No solution found\n")
    with pytest.raises(InvalidRequest, match=r"of .*/project cannot be locked \(uv lock\): No solution found$"):
        lock_project(project, "", {}, "", uv.environ, uv.tool)
    assert len(uv["arguments"]) == 1
    uv.write("fail", "")
    with pytest.raises(InvalidRequest, match=r"\(uv lock\): exit code 2$"):
        lock_project(project, "", {}, "", uv.environ, uv.tool)
    uv.write("fail", "x" * 5000 + "END")
    with pytest.raises(InvalidRequest) as long:
        lock_project(project, "", {}, "", uv.environ, uv.tool)
    assert str(long.value).endswith(": " + "x" * 4093 + "END")
    assert not (Path(uv.environ["IRIS_STATE_DIR"]) / "locks").exists()


def test_without_a_network_what_is_cached_may_do(uv: FakeUv, project: Project) -> None:
    uv.write("fail", "error sending request\n")
    uv.write("offline", "")
    lock_project(project, "", {}, "/py", uv.environ, uv.tool)
    assert uv["arguments"] == ["lock --python /py", "lock --offline --python /py"]
    (uv.notes / "offline").unlink()
    with pytest.raises(InvalidRequest, match=r"error sending request$"):
        lock_project(project, "", {}, "", uv.environ, uv.tool)


def test_a_lock_that_takes_for_ever_is_given_up(uv: FakeUv, project: Project) -> None:
    uv.program.write_text("#!/bin/sh\nexec sleep 60\n")
    uv.tool = Uv(str(uv.program), timeout_s=0.1, scratch=uv.tool.scratch)
    with pytest.raises(InvalidRequest, match="it took more than 0 s"):
        lock_project(project, "", {}, "", uv.environ, uv.tool)
