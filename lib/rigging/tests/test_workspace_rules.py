"""Which files of a folder go along: limits at their edges, what is left out, and what the user is told."""

import os
import subprocess
from pathlib import Path

import pytest

from rigging import workspace
from rigging.errors import InvalidRequest, MarinError
from rigging.workspace import WorkspaceFile, WorkspaceRules, check_workspace_root, list_workspace

KIB, MIB = 2**10, 2**20


def write(root: Path, name: str, size: int = 0) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)


def names(root: Path) -> list[str]:
    return [file.path for file in list_workspace(root, environ={}).files]


def test_sizes_and_modes(tmp_path: Path) -> None:
    write(tmp_path, "b", 7)
    write(tmp_path, "a/x", 5)
    (tmp_path / "b").chmod(0o654)
    (tmp_path / "a/x").chmod(0o744)
    (tmp_path / "link").symlink_to("a/x")
    listing = list_workspace(tmp_path, environ={})
    assert listing.files == (
        WorkspaceFile("a/x", 5, True), WorkspaceFile("b", 7, False), WorkspaceFile("link", 0, False, "a/x"),
    )  # fmt: skip
    assert (listing.size_bytes, listing.warnings) == (12, ())


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("home/me", "your home directory"),
        ("home", "a folder above your home directory"),
        ("tmp", "the directory of temporary files"),
        ("/", "the root of the file system"),
        ("/usr", "a directory of the system"),
        ("/proc/self", "a directory of the system"),
        ("/sys", "a directory of the system"),
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
        InvalidRequest, match=f"the workspace {root} is {reason}, .* in the folder of your files, or --"
    ):
        check_workspace_root(root, rules=rules, environ=environ)
    check_workspace_root(tmp_path / "home/me/project", environ=environ)


@pytest.mark.parametrize("mark", [".git", "pyproject.toml"])
def test_a_project_in_which_home_is_for_the_time_of_a_build_is_one(tmp_path: Path, mark: str) -> None:
    (tmp_path / "build/home").mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "build/home"), "TMPDIR": "/tmp"}
    with pytest.raises(InvalidRequest, match="above your home directory"):
        check_workspace_root(tmp_path, environ=environ)
    (tmp_path / mark).touch()
    check_workspace_root(tmp_path, environ=environ)


def test_a_root_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "none"):
        with pytest.raises(InvalidRequest, match=f"workspace {tmp_path / name} is not a directory"):
            check_workspace_root(tmp_path / name, environ={})


def test_what_may_not_be_read_is_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("open", "folder/closed", "file"):
        write(tmp_path, name)
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
    listing = list_workspace(tmp_path, environ={})
    assert [file.path for file in listing.files] == ["open"]
    assert sorted(listing.warnings) == [
        "file cannot be read: Permission denied; it is left out",
        "folder cannot be read: Permission denied; it is left out",
    ]


def test_folders_without_files_go_along(tmp_path: Path) -> None:
    write(tmp_path, "full/x")
    write(tmp_path, "caches/__pycache__/x.pyc")
    for folder in ("logs", "deep/er/est", ".hg/refs", ".env.d", "full/.venv/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "linked").symlink_to("logs")
    assert list_workspace(tmp_path, environ={}).empty_folders == ("caches", "deep/er/est", "logs")


def test_folders_without_files_of_a_repository_go_along_unless_git_ignores_them(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, "tracked/x")
    git(tmp_path, "add", ".")
    (tmp_path / ".gitignore").write_text("ignored/\n*.log\n")
    write(tmp_path, "new/x")
    write(tmp_path, "only/x.log")
    for folder in ("logs", "tracked/empty", "new/deep/er", "ignored/x", "new/ignored/x", "node_modules/x"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "inner/empty").mkdir(parents=True)
    git(tmp_path / "inner", "init", "-q")
    write(tmp_path, "inner/x")
    listing = list_workspace(tmp_path, environ={})
    assert [file.path for file in listing.files] == [".gitignore", "inner/x", "new/x", "tracked/x"]
    assert listing.empty_folders == ("inner/empty", "logs", "new/deep/er", "only", "tracked/empty")
    assert list_workspace(tmp_path / "new", environ={}).empty_folders == ("deep/er",)
    assert list_workspace(tmp_path / "ignored", environ={}).empty_folders == ("x",), "all of what is named so"


@pytest.mark.parametrize(("size", "fits"), [(MIB, True), (MIB + 1, False)])
def test_the_limit_is_the_last_size_that_fits(tmp_path: Path, size: int, fits: bool) -> None:
    write(tmp_path, "x", size)
    if fits:
        assert list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": "1"}).size_bytes == size
    else:
        with pytest.raises(InvalidRequest, match=r"1 MiB in 1 files, at most 1 MiB are allowed"):
            list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": "1"})


def test_a_limit_may_be_a_part_of_a_megabyte_and_is_a_hundred_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "x", 600 * KIB)
    with pytest.raises(InvalidRequest, match="at most 512 KiB"):
        list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": "0.5"})
    write(tmp_path, "y", 100 * MIB)
    with pytest.raises(InvalidRequest, match="at most 100 MiB"):
        list_workspace(tmp_path, environ={})


def test_the_largest_ten_are_named_and_the_way_out_fits_the_folder(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path, f"f{number:02}", (number + 1) * 200 * KIB)
    with pytest.raises(InvalidRequest) as refused:
        list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": "1"})
    lines = str(refused.value).splitlines()
    assert [line.split()[-1] for line in lines[1:11]] == [f"f{number:02}" for number in range(11, 1, -1)]
    assert "make it a git repository (`git init`)" in lines[-1]
    assert "To allow more, set MARIN_MAX_WORKSPACE_MB." in lines[-1]
    git(tmp_path, "init", "--quiet")
    with pytest.raises(InvalidRequest, match=r"list what the job does not need in .gitignore .or .git/info/exclude"):
        list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": "1"})


@pytest.mark.parametrize(("most", "fits"), [(3, True), (2, False)])
def test_the_most_files(tmp_path: Path, most: int, fits: bool) -> None:
    for name in ("a", "d/b", "d/c"):
        write(tmp_path, name)
    if fits:
        assert len(list_workspace(tmp_path, environ={}, max_files=most).files) == 3
        return
    with pytest.raises(InvalidRequest) as refused:
        list_workspace(tmp_path, environ={}, max_files=most)
    text = str(refused.value)
    assert "more than 0 B in more than 2 files, at most 2 files are allowed" in text
    assert "set MARIN_MAX_WORKSPACE_MB" not in text
    assert "files in ." in text
    assert "files in d" in text


def test_the_search_goes_on_for_two_seconds_to_find_the_largest(tmp_path: Path) -> None:
    for number in range(10):
        write(tmp_path, f"f{number}", MIB)
    times = iter([0.0, *[1.9] * 4, 2.0, *[2.1] * 20])
    with pytest.raises(InvalidRequest, match=r"more than \d+ MiB in more than \d+ files"):
        list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": "1"}, now=lambda: next(times))
    with pytest.raises(InvalidRequest, match=r": 10 MiB in 10 files"):
        list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": "1"}, now=lambda: 0.0)


def test_what_is_usually_ignored_stays_behind(tmp_path: Path) -> None:
    for name in (
        ".git/x", ".venv/x", "node_modules/x", "__pycache__/x", "a.pyc", "deep/a.pyo", "deep/.DS_Store", ".cache/x",
        ".envs/x", "mine/pyvenv.cfg", "mine/lib/x", "keep/.hidden", "keep/a.pyx", "venv.py",
    ):  # fmt: skip
        write(tmp_path, name)
    (tmp_path / ".git/x").unlink()
    (tmp_path / ".git").rmdir()
    assert names(tmp_path) == ["keep/.hidden", "keep/a.pyx", "venv.py"]


def test_links_to_folders_are_links_and_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path, "real/x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/side").symlink_to("../real/x")
    (tmp_path / "deep/out").symlink_to("../../x")
    listing = list_workspace(tmp_path, environ={})
    assert [(file.path, file.symlink_target) for file in listing.files] == [
        ("deep/side", "../real/x"), ("link", "real"), ("real/x", None),
    ]  # fmt: skip
    assert listing.warnings == (
        "symlink up points out of the workspace (to ..); it is left out",
        "symlink deep/out points out of the workspace (to ../../x); it is left out",
    )


def test_names_that_are_no_text_are_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path, "a")
    with open(os.fsencode(tmp_path) + b"/\xff", "wb"):
        pass
    listing = list_workspace(tmp_path, environ={})
    assert [file.path for file in listing.files] == ["a"]
    assert listing.warnings == ("'\\udcff' is not named in UTF-8; it is left out",)


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
    listing = list_workspace(tmp_path, environ={})
    assert [file.path for file in listing.files] == [name]
    expected = f"{name} goes along with the job and may hold secrets; list it in .gitignore to keep it here"
    assert listing.warnings == ((expected,) if told else ())


def test_without_the_git_program_a_repository_is_a_plain_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "a.py")
    write(tmp_path, "__pycache__/a.pyc")
    monkeypatch.setenv("PATH", "/nowhere")
    assert names(tmp_path) == ["a.py"]


def test_a_git_that_fails_or_takes_for_ever_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, programs = tmp_path / "r", tmp_path / "bin"
    write(repository, ".git")
    programs.mkdir()
    program = programs / "git"
    program.write_text("#!/bin/sh\necho 'fatal: bad index' >&2\nexit 128\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    with pytest.raises(MarinError, match=r"git could not list the files of the workspace .*: fatal: bad index"):
        names(repository)
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(workspace, "GIT_SECONDS", 0.1)
    with pytest.raises(InvalidRequest, match="git needs more than 0 s to list the files"):
        names(repository)


def test_what_git_cannot_open_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, programs = tmp_path / "r", tmp_path / "bin"
    write(repository, ".git")
    write(repository, "a")
    programs.mkdir()
    (programs / "git").write_text(
        "#!/bin/sh\necho \"warning: could not open directory 'x/'\" >&2\necho 'hint' >&2\nprintf 'H a\\0? b\\0'\n"
    )
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    listing = list_workspace(repository, environ={})
    assert [file.path for file in listing.files] == ["a"], "b is gone already"
    assert listing.warnings == ("git: warning: could not open directory 'x/'; it is left out",)


def test_a_refusal_speaks_in_the_words_of_the_tool_that_asked(tmp_path: Path) -> None:
    write(tmp_path, "x", 2 * MIB)
    rules = WorkspaceRules("TOOL_MB", default_mb=1, other_ways="use --elsewhere")
    with pytest.raises(InvalidRequest, match=r"or use --elsewhere\. To allow more, set TOOL_MB\."):
        list_workspace(tmp_path, rules=rules, environ={})
    assert list_workspace(tmp_path, rules=rules, environ={"TOOL_MB": "2"}).files
    with pytest.raises(InvalidRequest, match=r"root of the file system.*or use --elsewhere"):
        check_workspace_root(Path("/"), rules=rules)
