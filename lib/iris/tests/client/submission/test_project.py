"""What a workspace says about its packages, and where its parts go in a bundle."""

from pathlib import Path

import pytest

from iris.client.submission.packing import lay_out
from iris.client.submission.project import read_project
from iris.client.submission.runtime_choice import PythonEnvironment, Submitting, check_extras, choose_runtime
from iris.domain.runtime import PackageSource
from iris.testing.packages import make_wheel, write_package
from rigging.errors import InvalidRequest

PROJECT = '[project]\nname = "p"\nversion = "1"\n'
OWN = PythonEnvironment("/own", "3.11.7", "/usr/bin/python3.11")
SHELL = PythonEnvironment("/shell", "3.12.1", "/usr/bin/python3.12")
HERE = Submitting(OWN, SHELL, same_machine=True)
THERE = Submitting(OWN, SHELL, same_machine=False)


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
    assert dict(layout.beside) == {
        "libs/one": one.parent,
        "two": root.parent / "two",
        "proj/pyproject.toml": root / "pyproject.toml",
    }


def test_a_lock_names_what_it_takes_from_where(root):
    make_wheel(root.parent / "wheels" / "w-1-py3-none-any.whl", "w", "1", {})
    write(root, "pyproject.toml", PROJECT + '[tool.uv.workspace]\nmembers = ["lib/*"]\n')
    write(root, "lib/member/pyproject.toml", PROJECT)
    write(root.parent / "lib", "a.py", "")
    write(
        root,
        "uv.lock",
        "version = 1\n"
        '[[package]]\nname = "p"\nsource = { editable = "." }\n'
        '[[package]]\nname = "member"\nsource = { editable = "lib/member" }\n'
        '[[package]]\nname = "w"\nsource = { path = "../wheels/w-1-py3-none-any.whl" }\n'
        '[[package]]\nname = "l"\nsource = { directory = "../lib" }\n'
        '[[package]]\nname = "n"\nsource = { registry = "https://packages.example/simple" }\n'
        '[[package]]\nname = "g"\nsource = { git = "https://x/y#abc" }\n',
    )
    project = read_project(root)
    assert [found.name for found in project.dependencies] == ["w", "l"]
    assert sorted(lay_out(project).beside) == [
        "lib",
        "proj/pyproject.toml",
        "proj/uv.lock",
        "wheels/w-1-py3-none-any.whl",
    ]


def test_requirements_name_files_and_folders(root):
    (root.parent / "x").mkdir()
    (root.parent / "wheels").mkdir()
    (root / "local").mkdir()
    write(root.parent, "common.txt", "-c limits.txt\nnumpy>=2 ; python_version < '3.13'\n")
    write(root.parent, "limits.txt", "")
    write(
        root,
        "requirements.txt",
        "# a comment\n--find-links ../wheels\n-f https://host/wheels\n-r ../common.txt\n-e ../x[all]  # ours\n./local\ngit+https://host/a/b.git@v1\n"
        "pkg @ https://host/p.whl\n--index-url https://host/simple\nrequests[socks]==2.*\n",
    )
    assert [found.written for found in read_project(root).dependencies] == [
        "../wheels",
        "../common.txt",
        "limits.txt",
        "../x",
        "./local",
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("requirements.txt", "-e /opt/mylib\n", "/opt/mylib in requirements.txt is at '/opt/mylib'"),
        ("requirements.txt", "mylib @ file:///opt/mylib\n", "in requirements.txt is at 'file:///opt/mylib'"),
        ("requirements.txt", "../gone.whl\n", "and there is no .*gone.whl"),
        (
            "pyproject.toml",
            PROJECT + 'dependencies = ["m @ file:///opt/m"]\n',
            "m in pyproject.toml is at 'file:///opt/m'",
        ),
        ("pyproject.toml", PROJECT + '[tool.uv.sources]\nm = {path = "../m"}\n', "m in pyproject.toml is at '../m'"),
        ("pyproject.toml", PROJECT + '[tool.uv.sources]\nm = {path = "~/m"}\n', "another machine has not"),
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
    with pytest.raises(InvalidRequest, match="another machine has not"):
        read_project(root)
    project = read_project(root, same_machine=True)
    assert lay_out(project).beside["m-1-py3-none-any.whl"] == wheel


@pytest.mark.parametrize(
    ("files", "is_callable", "here", "expected"),
    [
        ({}, False, HERE, ("3.12", PackageSource.SUBMITTER, "/shell")),
        ({}, True, HERE, ("3.11", PackageSource.SUBMITTER, "/own")),
        ({".python-version": "3.12.1"}, False, HERE, ("3.12.1", PackageSource.SUBMITTER, "/shell")),
        ({".python-version": "my-env\n"}, False, HERE, ("3.12", PackageSource.SUBMITTER, "/shell")),
        ({".python-version": "# why\n\ncpython-3.13"}, False, HERE, ("3.13", PackageSource.NONE, "")),
        ({".python-version": "3.13"}, True, HERE, ("3.11", PackageSource.SUBMITTER, "/own")),
        ({"requirements.txt": ""}, False, THERE, ("3.12", PackageSource.REQUIREMENTS, "")),
        ({"pyproject.toml": PROJECT + 'requires-python = ">= 3.9"\n'}, True, THERE, ("3.11", PackageSource.LOCK, "")),
        ({"pyproject.toml": PROJECT + 'requires-python = "<3.12"\n'}, False, THERE, ("<3.12", PackageSource.LOCK, "")),
    ],
)
def test_who_says_which_python(root, files, is_callable, here, expected):
    for name, text in files.items():
        write(root, name, text)
    runtime, told = choose_runtime(read_project(root), here, is_callable=is_callable)
    assert (runtime.python, runtime.packages, runtime.environment_path) == expected
    assert bool(runtime.interpreter) == here.same_machine
    is_other = runtime.packages in (PackageSource.SUBMITTER, PackageSource.NONE) or runtime.python == "<3.12"
    assert bool(told) == is_other


def test_elsewhere_a_folder_that_says_nothing_is_refused_with_what_to_add(root):
    with pytest.raises(InvalidRequest, match=r"uv\.lock, a pyproject\.toml .*requirements\.txt.*--no-workspace"):
        choose_runtime(read_project(root), THERE, is_callable=False)
    assert choose_runtime(None, THERE, is_callable=False)[0].packages is PackageSource.NONE
    assert choose_runtime(None, HERE, is_callable=False)[0].packages is PackageSource.SUBMITTER


def test_a_callable_from_a_python_that_the_project_excludes_is_refused_with_both(root):
    write(root, "pyproject.toml", PROJECT + 'requires-python = ">=3.12"\n')
    with pytest.raises(InvalidRequest, match=r"Python 3\.11\.7 .* requires Python >=3\.12"):
        choose_runtime(read_project(root), HERE, is_callable=True)


def test_unknown_extras_are_refused_with_those_there_are(root):
    write(root, "pyproject.toml", PROJECT + "[project.optional-dependencies]\nGPU_x = []\n")
    project = read_project(root)
    check_extras(["gpu-X"], project)
    with pytest.raises(InvalidRequest, match=r"extra 'tpu' is not defined by .*its extras: gpu-x"):
        check_extras(["tpu"], project)
    with pytest.raises(InvalidRequest, match="it has no workspace"):
        check_extras(["tpu"], None)
    write(root, "pyproject.toml", PROJECT + 'dynamic = ["optional-dependencies"]\n')
    check_extras(["tpu"], read_project(root))


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


def test_a_registry_that_is_a_folder_goes_along(root):
    (root.parent / "index").mkdir()
    write(root, "pyproject.toml", PROJECT)
    write(
        root,
        "uv.lock",
        '[[package]]\nname = "i"\nsource = { registry = "../index" }\n'
        '[[package]]\nname = "j"\nsource = { registry = "../index" }\n'
        '[[package]]\nname = "u"\nsource = { registry = "https://host/simple" }\n'
        '[[package]]\nname = "v"\nsource = { virtual = "." }\n'
        '[[package]]\nname = "none"\n',
    )
    assert [(found.name, found.origin) for found in read_project(root).dependencies] == [("i", "uv.lock")]


@pytest.mark.parametrize("name", [".python-version", "pyproject.toml", "uv.lock"])
def test_a_file_that_is_no_text_is_named(root, name):
    write(root, "pyproject.toml", PROJECT)
    (root / name).write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match=f"/{name} cannot be read: "):
        read_project(root)
