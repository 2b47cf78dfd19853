import os
import socket
import subprocess
from pathlib import Path

import pytest

from rigging.errors import InvalidRequest, MarinError
from rigging.project import workspace
from rigging.project.workspace import (
    WorkspaceFile,
    WorkspaceListing,
    WorkspaceRules,
    check_workspace_root,
    list_workspace,
)

KIB, MIB = 2**10, 2**20


def write(root: Path, *names: str, size: int = 0) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with (root / name).open("wb") as file:
            file.truncate(size)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)


def listed(root: Path, megabytes: str | None = None) -> WorkspaceListing:
    return list_workspace(root, environ={} if megabytes is None else {"MARIN_MAX_WORKSPACE_MB": megabytes})


def names(root: Path) -> list[str]:
    return [file.path for file in listed(root).files]


def refusal(root: Path, megabytes: str | None = None) -> str:
    with pytest.raises(InvalidRequest) as refused:
        listed(root, megabytes)
    return str(refused.value)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "work space"
    root.mkdir()
    git(root, "init", "--quiet")
    return root


def test_of_a_repository_all_but_what_is_ignored_or_deleted_goes_along(repository: Path) -> None:
    write(repository, "tracked.py", "gone.py", "new.py", "skip.log", "ümlaut \n.txt", "sub/b.py", "scratch/a.py")
    (repository / ".gitignore").write_text("*.log\nscratch/\n")
    git(repository, "add", "tracked.py", "gone.py")
    (repository / "gone.py").unlink()
    assert names(repository) == sorted([".gitignore", "new.py", "sub/b.py", "tracked.py", "ümlaut \n.txt"])
    assert names(repository / "sub") == ["b.py"], "only what is below the root"
    assert names(repository / "scratch") == ["a.py"], "what is ignored as a whole is a plain folder"


def test_sizes_modes_and_links(tmp_path: Path) -> None:
    write(tmp_path, "b", size=7)
    write(tmp_path, "a/x", size=5)
    (tmp_path / "b").chmod(0o654)
    (tmp_path / "a/x").chmod(0o744)
    (tmp_path / "deep").mkdir()
    outside = {"abs": "/etc", "deep/out": "../../x", "up": ".."}
    for name, target in {"link": "a", "deep/side": "../a/x", **outside}.items():
        (tmp_path / name).symlink_to(target)
    found = listed(tmp_path)
    a, b = WorkspaceFile("a/x", 5, True), WorkspaceFile("b", 7, False)
    assert found.files == (a, b, WorkspaceFile("deep/side", 0, False, "../a/x"), WorkspaceFile("link", 0, False, "a"))
    assert found.size_bytes == 12
    assert sorted(found.warnings) == [
        f"symlink {name} points out of the workspace (to {target}); skipping it" for name, target in outside.items()
    ]


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("home/me", "your home directory"),
        ("home", "a folder above your home directory"),
        ("tmp", "the directory of temporary files"),
        ("/", "the root of the file system"),
        ("/usr", "a directory of the system"),
        ("/proc/self", "a directory of the system"),
        ("link", "your home directory"),
    ],
)
def test_a_folder_that_is_no_project_is_refused(tmp_path: Path, folder: str, reason: str) -> None:
    for name in ("home/me/project", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("home/me")
    environ = {"HOME": str(tmp_path / "home/me"), "TMPDIR": str(tmp_path / "tmp")}
    root, rules = tmp_path / folder, WorkspaceRules(other_ways="--none")
    with pytest.raises(
        InvalidRequest, match=f"the workspace {root} is {reason}, .* in the folder of your files, or --none"
    ):
        check_workspace_root(root, rules=rules, environ=environ)
    check_workspace_root(tmp_path / "home/me/project", environ=environ)


@pytest.mark.parametrize("mark", [".git", "pyproject.toml"])
def test_a_project_in_which_home_is_for_the_time_of_a_build_is_one(tmp_path: Path, mark: str) -> None:
    (tmp_path / "build/home").mkdir(parents=True)
    (tmp_path / mark).touch()
    check_workspace_root(tmp_path, environ={"HOME": str(tmp_path / "build/home"), "TMPDIR": "/tmp"})


@pytest.mark.parametrize("name", ["file", "none"])
def test_a_root_that_is_no_folder_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    for use in (check_workspace_root, list_workspace):
        with pytest.raises(InvalidRequest, match=f"workspace {tmp_path / name} is not a directory"):
            use(tmp_path / name, environ={})


def test_what_is_unreadable_or_no_file_is_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "open", "folder/closed", "file")
    os.mkfifo(tmp_path / "pipe")
    with open(os.fsencode(tmp_path) + b"/\xff", "wb"), socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # a socket's path must be short
        listening.bind("sock")
    scandir, lstat = os.scandir, Path.lstat

    def closed_folder(path: str) -> object:
        if str(path).endswith("/folder"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    def closed_file(path: Path) -> os.stat_result:
        if path.name == "file":
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path)

    monkeypatch.setattr(os, "scandir", closed_folder)
    monkeypatch.setattr(Path, "lstat", closed_file)
    found = listed(tmp_path)
    assert [file.path for file in found.files] == ["open"]
    assert sorted(found.warnings) == [
        "'\\udcff' is not named in UTF-8; skipping it",
        "file cannot be read: Permission denied; skipping it",
        "folder cannot be read: Permission denied; skipping it",
        "pipe is neither a file nor a symlink; skipping it",
        "sock is neither a file nor a symlink; skipping it",
    ]


def test_folders_without_files_go_along(tmp_path: Path) -> None:
    write(tmp_path, "full/x", "caches/__pycache__/x.pyc")
    for folder in ("logs", "deep/er/est", ".hg/refs", ".env.d", "full/.venv/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "linked").symlink_to("logs")
    assert listed(tmp_path).empty_folders == ("caches", "deep/er/est", "logs")


def test_folders_without_files_of_a_repository_go_along_unless_git_ignores_them(repository: Path) -> None:
    write(repository, "tracked/x")
    git(repository, "add", ".")
    (repository / ".gitignore").write_text("ignored/\n*.log\n")
    write(repository, "new/x", "only/x.log", "inner/x", "inner/y.log")
    for folder in ("logs", "tracked/empty", "new/deep/er", "ignored/x", "new/ignored/x", "node_modules/x", "inner/e"):
        (repository / folder).mkdir(parents=True)
    git(repository / "inner", "init", "-q")
    (repository / "inner/.gitignore").write_text("*.log\n")
    found = listed(repository)
    assert [file.path for file in found.files] == [".gitignore", "inner/.gitignore", "inner/x", "new/x", "tracked/x"]
    assert found.empty_folders == ("inner/e", "logs", "new/deep/er", "only", "tracked/empty")
    assert listed(repository / "new").empty_folders == ("deep/er",)
    assert listed(repository / "ignored").empty_folders == ("x",), "all of what is named so"


def test_the_limit_is_the_last_size_that_fits_and_a_hundred_megabytes_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "x", size=MIB)
    assert listed(tmp_path, "1").size_bytes == MIB
    assert "at most 512 KiB" in refusal(tmp_path, "0.5")
    write(tmp_path, "x", size=MIB + 1)
    assert "1 MiB in 1 files, at most 1 MiB are allowed" in refusal(tmp_path, "1")
    write(tmp_path, "y", size=100 * MIB)
    assert "at most 100 MiB" in refusal(tmp_path)
    for wrong in ("x", "0", "-3", "nan"):
        assert f"MARIN_MAX_WORKSPACE_MB='{wrong}': give a number" in refusal(tmp_path, wrong)


def test_the_largest_ten_are_named_and_the_way_out_fits_the_folder(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path, f"f{number:02}", size=(number + 1) * 200 * KIB)
    lines = refusal(tmp_path, "1").splitlines()
    assert [line.split()[-1] for line in lines[1:11]] == [f"f{number:02}" for number in range(11, 1, -1)]
    assert "make it a git repository (`git init`)" in lines[-1]
    assert "To allow more, set MARIN_MAX_WORKSPACE_MB." in lines[-1]
    git(tmp_path, "init", "--quiet")
    assert "list what the job does not need in .gitignore (or .git/info/exclude)" in refusal(tmp_path, "1")
    rules = WorkspaceRules("TOOL_MB", default_mb=1, other_ways="use --elsewhere")
    with pytest.raises(InvalidRequest, match=r"or use --elsewhere\. To allow more, set TOOL_MB\."):
        list_workspace(tmp_path, rules=rules, environ={})
    assert list_workspace(tmp_path, rules=rules, environ={"TOOL_MB": "20"}).files


def test_the_most_files(tmp_path: Path) -> None:
    write(tmp_path, "a", "d/b", "d/c")
    assert len(list_workspace(tmp_path, environ={}, max_files=3).files) == 3
    with pytest.raises(InvalidRequest) as refused:
        list_workspace(tmp_path, environ={}, max_files=2)
    text = str(refused.value)
    for words in ("more than 0 B in more than 2 files, at most 2 files are allowed", "files in .\n", "files in d\n"):
        assert words in text
    assert "set MARIN_MAX_WORKSPACE_MB" not in text


def test_the_search_goes_on_for_two_seconds_to_find_the_largest(tmp_path: Path) -> None:
    for number in range(10):
        write(tmp_path, f"f{number}", size=MIB)
    times = iter([0.0, *[1.9] * 4, 2.0, *[2.1] * 20])
    environ = {"MARIN_MAX_WORKSPACE_MB": "1"}
    with pytest.raises(InvalidRequest, match=r"more than \d+ MiB in more than \d+ files"):
        list_workspace(tmp_path, environ=environ, now=lambda: next(times))
    with pytest.raises(InvalidRequest, match=r": 10 MiB in 10 files"):
        list_workspace(tmp_path, environ=environ, now=lambda: 0.0)


def test_what_is_usually_ignored_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ".venv/x", "node_modules/x", "__pycache__/x", "a.pyc", "deep/a.pyo", "deep/.DS_Store", ".cache/x")
    write(tmp_path, ".envs/x", "mine/pyvenv.cfg", "mine/lib/x", "keep/.hidden", "keep/a.pyx", "venv.py")
    write(tmp_path, ".env", ".env.local", ".envrc", ".env.example", ".mypy_cache/x")
    kept = [".env.example", "keep/.hidden", "keep/a.pyx", "venv.py"]
    assert names(tmp_path) == kept
    git(tmp_path, "init", "--quiet")
    monkeypatch.setenv("PATH", "/nowhere")
    assert names(tmp_path) == kept, "without the program a repository is a plain folder"


def test_files_that_look_like_secrets_stay_behind_unless_git_tracks_them(repository: Path) -> None:
    write(repository, ".env", "app/.env.local", ".env.example", ".env.ci", "a.py", "id_rsa")
    git(repository, "add", ".env.ci")
    found = listed(repository)
    assert [file.path for file in found.files] == [".env.ci", ".env.example", "a.py", "id_rsa"]
    warned = {warning.split()[0]: "skipping it" in warning for warning in found.warnings}
    assert warned == {".env": True, "app/.env.local": True, ".env.ci": False, "id_rsa": False}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (".netrc", True),
        ("sub/id_rsa", True),
        ("credentials.json", True),
        ("id_rsa.pub", False),
        ("credentials.json.example", False),
    ],
)
def test_what_may_hold_secrets_and_goes_along_is_told(tmp_path: Path, name: str, told: bool) -> None:
    write(tmp_path, name)
    found = listed(tmp_path)
    assert [file.path for file in found.files] == [name]
    expected = f"{name} is sent with the job and may hold secrets; list it in .gitignore to keep it here"
    assert found.warnings == ((expected,) if told else ())


def test_what_git_says_of_its_troubles_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, program = tmp_path / "r", tmp_path / "bin/git"
    write(root, ".git", "a")
    write(tmp_path, "bin/git")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    told = "could not open directory 'x/'"
    program.write_text(f"#!/bin/sh\necho \"warning: {told}\" >&2\necho 'hint' >&2\nprintf 'H a\\0? b\\0'\n")
    found = listed(root)
    assert [file.path for file in found.files] == ["a"], "b is gone already"
    assert found.warnings == (f"git: warning: {told}; skipping it",)
    program.write_text("#!/bin/sh\necho 'fatal: bad index' >&2\nexit 128\n")
    with pytest.raises(MarinError, match=r"git could not list the files of the workspace .*: fatal: bad index"):
        listed(root)
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(workspace, "GIT_SECONDS", 0.1)
    assert "git needs more than 0 s to list the files" in refusal(root)
