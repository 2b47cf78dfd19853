"""What a workspace says about its packages, and where its parts go in a bundle."""

from pathlib import Path

import pytest

from iris.client.submission.packing import lay_out
from iris.client.submission.project import read_project
from iris.domain.runtime import PackageSource
from rigging.errors import InvalidRequest
from support.iris.packages import make_wheel, write_package

PROJECT = '[project]\nname = "p"\nversion = "1"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "proj"
    made.mkdir(parents=True)
    return made


def write(root: Path, name: str, text: str) -> Path:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return root / name


def test_the_first_that_says_it_decides_where_packages_come_from(root):
    assert read_project(root).packages is PackageSource.NONE
    write(root, "requirements.txt", "numpy\n")
    assert read_project(root).packages is PackageSource.REQUIREMENTS
    write(root, "pyproject.toml", "[tool.ruff]\n")  # no project: settings of a tool
    assert read_project(root).packages is PackageSource.REQUIREMENTS
    write(root, "pyproject.toml", PROJECT)
    assert (read_project(root).packages, read_project(root).locked) == (PackageSource.LOCK, False)
    write(root, "uv.lock", "version = 1\n")
    assert read_project(root).locked


def test_paths_between_a_project_and_its_libraries_stay_as_they_are(root):
    write_package(root.parent / "libs" / "one", "one", "1", "")
    write_package(root.parent / "two", "two", "1", "")
    one = write(
        root.parent / "libs" / "one", "pyproject.toml", PROJECT + '[tool.uv.sources]\ntwo = {path = "../../two"}\n'
    )
    write(root, "pyproject.toml", PROJECT + '[tool.uv.sources]\none = [{path = "../libs/one", marker = "x"}]\n')
    layout = lay_out(read_project(root))
    assert layout.project_dir == "proj"
    own = {"proj/pyproject.toml": root / "pyproject.toml"}
    assert dict(layout.beside) == {"libs/one": one.parent, "two": root.parent / "two", **own}


def test_a_lock_names_what_it_takes_from_where(root):
    make_wheel(root.parent / "wheels" / "w-1-py3-none-any.whl", "w", "1", {})
    write(root, "pyproject.toml", PROJECT + '[tool.uv.workspace]\nmembers = ["lib/*"]\n')
    write(root, "lib/member/pyproject.toml", PROJECT)
    write(root.parent / "lib", "a.py", "")
    write(root.parent / "index", "a.txt", "")
    write(
        root,
        "uv.lock",
        "version = 1\n"
        '[[package]]\nname = "p"\nsource = { editable = "." }\n'
        '[[package]]\nname = "member"\nsource = { editable = "lib/member" }\n'
        '[[package]]\nname = "w"\nsource = { path = "../wheels/w-1-py3-none-any.whl" }\n'
        '[[package]]\nname = "l"\nsource = { directory = "../lib" }\n'
        '[[package]]\nname = "i"\nsource = { registry = "../index" }\n'
        '[[package]]\nname = "j"\nsource = { registry = "../index" }\n'
        '[[package]]\nname = "n"\nsource = { registry = "https://packages.example/simple" }\n'
        '[[package]]\nname = "v"\nsource = { virtual = "." }\n'
        '[[package]]\nname = "none"\n'
        '[[package]]\nname = "g"\nsource = { git = "https://x/y#abc" }\n',
    )
    project = read_project(root)
    assert [(found.name, found.origin) for found in project.dependencies] == [
        (name, "uv.lock") for name in ("w", "l", "i")
    ]
    beside = sorted(lay_out(project).beside)
    assert beside == ["index", "lib", "proj/pyproject.toml", "proj/uv.lock", "wheels/w-1-py3-none-any.whl"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("requirements.txt", "-e /opt/mylib\n", "/opt/mylib in requirements.txt is at '/opt/mylib'"),
        ("requirements.txt", "mylib @ file:///opt/mylib\n", "in requirements.txt is at 'file:///opt/mylib'"),
        ("requirements.txt", "../gone.whl\n", "gone.whl does not exist"),
        (
            "pyproject.toml",
            PROJECT + 'dependencies = ["m @ file:///opt/m"]\n',
            "m in pyproject.toml is at 'file:///opt/m'",
        ),
        ("pyproject.toml", PROJECT + '[tool.uv.sources]\nm = {path = "../m"}\n', "m in pyproject.toml is at '../m'"),
        ("pyproject.toml", PROJECT + '[tool.uv.sources]\nm = {path = "~/m"}\n', "does not exist on other machines"),
        ("pyproject.toml", "[project", "pyproject.toml cannot be read"),
    ],
)
def test_what_no_other_machine_could_follow_is_refused_by_name(root, name, text, words):
    write(root, name, text)
    with pytest.raises(InvalidRequest, match=words):
        read_project(root)


def test_absolute_paths_hold_on_the_same_machine_and_what_is_there_decides(root):
    wheel = root.parent / "m-1-py3-none-any.whl"
    make_wheel(wheel, "m", "1", {})
    write(root, "requirements.txt", f"{wheel}\nm @ {wheel.as_uri()}\n")
    with pytest.raises(InvalidRequest, match="does not exist on other machines"):
        read_project(root)
    project = read_project(root, same_machine=True)
    assert lay_out(project).beside["m-1-py3-none-any.whl"] == wheel


@pytest.mark.parametrize(
    ("text", "version"),
    [("3.12.1", "3.12.1"), ("my-env\n", ""), ("# why\n\ncpython-3.13", "3.13"), ("python@3.12\n", "3.12")],
)
def test_the_version_that_a_version_file_asks_for(root, text, version):
    assert read_project(root).python_version == ""
    write(root, ".python-version", text)
    assert read_project(root).python_version == version


def test_extras_are_named_as_packages_are_unless_only_a_build_can_name_them(root):
    write(root, "pyproject.toml", PROJECT + 'requires-python = ">=3.12"\n[project.optional-dependencies]\nGPU_x = []\n')
    assert (read_project(root).extras, read_project(root).requires_python) == ({"gpu-x"}, ">=3.12")
    write(root, "pyproject.toml", PROJECT + 'dynamic = ["optional-dependencies"]\n')
    assert read_project(root).extras is None


def test_members_that_are_left_out_or_are_no_projects_are_none(root):
    settings = '[tool.uv.workspace]\nmembers = ["lib/*"]\nexclude = ["lib/old*"]\n'
    write(root, "pyproject.toml", PROJECT + settings)
    for name, group in (("a", "one"), ("old-b", "two"), ("c", "three")):
        write(root, f"lib/{name}/pyproject.toml", PROJECT + f"[project.optional-dependencies]\n{group} = []\n")
    write(root, "lib/data/x.txt", "")
    write(root, "lib/file", "")
    project = read_project(root)
    assert project.extras == {"one", "three"}
    assert not project.builds
    sources = '[tool.uv.sources]\na = {path = "lib/a"}\nold = {path = "lib/old-b"}\ng = {git = "x"}\nw = "x"\n'
    write(root, "pyproject.toml", PROJECT + settings + sources)
    assert [found.name for found in read_project(root).dependencies] == ["a", "old"]


@pytest.mark.parametrize(
    ("table", "builds"),
    [(PROJECT, False), (PROJECT + 'dynamic = ["version"]\n', True), ("[tool.x]\n", True), (None, True)],
)
def test_a_library_that_does_not_say_all_it_needs_must_be_built(root, table, builds):
    (root.parent / "lib").mkdir()
    if table is not None:
        write(root.parent / "lib", "pyproject.toml", table)
    write(root, "pyproject.toml", PROJECT + '[tool.uv.sources]\nlib = {path = "../lib"}\n')
    assert read_project(root).builds is builds


def test_each_place_goes_along_once_whoever_names_it(root):
    x, y = root.parent / "x", root.parent / "y"
    x.mkdir()
    y.mkdir()
    names = f'dependencies = ["x @ {x.as_uri()}", "plain>=1", "z @ https://host/z.whl"]\n'
    extra = f'[project.optional-dependencies]\nmore = ["y@{y.as_uri().upper()[:4]}{y.as_uri()[4:]} ; marker"]\n'
    sources = '[tool.uv.sources]\nx2 = {path = "../x"}\n'
    write(root, "pyproject.toml", PROJECT + names + extra + sources)
    found = read_project(root, same_machine=True).dependencies
    assert [(item.name, item.target, item.origin) for item in found] == [
        ("x", x, "pyproject.toml"), ("y", y, "pyproject.toml"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [".python-version", "pyproject.toml", "uv.lock"])
def test_a_file_that_is_no_text_is_named(root, name):
    write(root, "pyproject.toml", PROJECT)
    (root / name).write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match=f"/{name} cannot be read: "):
        read_project(root)
