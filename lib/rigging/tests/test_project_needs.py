"""Packages that a job gets installed, and folders that it imports from, by pyproject.toml."""

import contextlib
from pathlib import Path

import pytest

from rigging.errors import InvalidRequest
from rigging.project.needs import (
    check_requirement,
    group_requirements,
    normalized,
    project_needs,
    read_pyprojects,
    split_requirements,
)

ROOT = """
[project]
name = "study"
dependencies = ["marin-core[fast]", "fsspec>=2025.3", "ray[default]>=2.49", "grain", "pinned"]
[project.optional-dependencies]
tokenize_train = ["tokenizers>=0.20"]
[tool.uv.workspace]
members = ["lib/*"]
exclude = ["lib/old"]
[tool.uv.sources]
marin-core = { workspace = true }
grain = { git = "https://example.org/grain.git", rev = "abc", subdirectory = "py" }
pinned = { url = "https://example.org/pinned-1.whl" }
"""
CORE = """
[project]
name = "marin_core"
dependencies = ["draccus>=0.11", "fsspec>=2025.3"]
[project.optional-dependencies]
fast = ["uvloop", "marin-core[more]"]
more = ["orjson; python_version >= '3.11'"]
tokenize_train = ["transformers>=4.50"]
"""


def write(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return sorted(files)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return write(
        tmp_path,
        {
            "pyproject.toml": ROOT,
            "lib/core/pyproject.toml": CORE,
            "lib/core/src/marin_core/__init__.py": "",
            "lib/flat/pyproject.toml": "[project]\nname = 'flat'\n",
            "lib/flat/flat.py": "",
            "lib/old/pyproject.toml": "[project]\nname = 'old'\n",
            "submodules/levanter/src/levanter/__init__.py": "",
            "submodules/tool/tool.py": "",
            "submodules/README": "",
        },
    )


def test_projects_of_the_workspace_are_followed_and_imported_from_not_installed(
    tmp_path: Path, files: list[str]
) -> None:
    needs = project_needs(read_pyprojects(tmp_path), [], files, left_out={"ray"})
    assert needs.requirements == (
        "draccus>=0.11",
        "fsspec>=2025.3",
        "uvloop",
        "orjson; python_version >= '3.11'",
        "grain @ git+https://example.org/grain.git@abc#subdirectory=py",
        "pinned @ https://example.org/pinned-1.whl",
    )
    assert needs.import_paths == (
        "lib/core/src", "lib/flat", "submodules/levanter", "submodules/levanter/src", "submodules/tool",
    )  # fmt: skip
    (note,) = needs.notes
    assert "ray[default]>=2.49 is not installed" in note, "the cluster's own"


@pytest.mark.parametrize("name", ["tokenize_train", "Tokenize-Train"])
def test_a_group_is_that_of_every_project_that_has_it(tmp_path: Path, files: list[str], name: str) -> None:
    needs = project_needs(read_pyprojects(tmp_path), [name], files)
    assert needs.requirements[-2:] == ("tokenizers>=0.20", "transformers>=4.50")
    assert group_requirements(read_pyprojects(tmp_path), ["fast"]) == [
        "uvloop", "draccus>=0.11", "fsspec>=2025.3", "orjson; python_version >= '3.11'",
    ], "a project of the workspace that it names is followed"  # fmt: skip
    with pytest.raises(InvalidRequest, match=r"extra 'tokenise_train'.*did you mean 'tokenize-train'.*fast"):
        project_needs(read_pyprojects(tmp_path), ["tokenise_train"], files)
    assert normalized("Tokenize_Train.x--y") == "tokenize-train-x-y"


def test_without_a_project_nothing_is_needed_and_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    needs = project_needs(read_pyprojects(tmp_path), [], ["a.py"])
    assert (needs.requirements, needs.import_paths) == ((), ())
    with pytest.raises(InvalidRequest, match="known: none"):
        project_needs({}, ["x"], [])
    (tmp_path / "pyproject.toml").write_text("[project")
    with pytest.raises(InvalidRequest, match=r"pyproject\.toml cannot be read"):
        read_pyprojects(tmp_path)


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        *((path, False) for path in ("../elsewhere", "/opt/mine", "~/mine")),
        *((path, True) for path in ("./x/mine", "x/other/../mine", "x//mine/")),
    ],
)
def test_a_dependency_by_its_path_is_imported_from_there_or_is_outside_of_what_is_sent(path: str, inside: bool) -> None:
    tables = {"": {"project": {"dependencies": ["mine"]}, "tool": {"uv": {"sources": {"mine": {"path": path}}}}}}
    if inside:
        needs = project_needs(tables, [], ["x/mine/src/mine.py"])
        assert (needs.requirements, needs.import_paths) == ((), ("x/mine/src",))
        return
    with pytest.raises(InvalidRequest, match=r"mine is at .* outside of the working directory"):
        project_needs(tables, [], [])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b[x,y]", ["a", "b[x,y]"]),
        ("a>=1,<2,b", ["a>=1,<2", "b"]),
        (" google-cloud-logging , six==1.16.0,", ["google-cloud-logging", "six==1.16.0"]),
        ("", []),
    ],
)
def test_requirements_in_one_word(text: str, parts: list[str]) -> None:
    assert split_requirements(text) == parts


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *(
            (text, True)
            for text in ("a", "b[x, y]", "a>=1, <2", "a (>=1,<2)", "a == 1.*; python_version < '4'", "--pre")
        ),
        *((text, True) for text in ("--pre", "a @ git+https://x/y.git@main", "./wheels/a.whl", "a-1-py3-none-any.whl")),
        *((text, False) for text in ("", "!!", "a b", "a=1", "a>=", "a[x", "a>1 <2", "a @ ")),
    ],
)
def test_what_is_no_requirement_is_told_before_pip_finds_out_on_a_node(text: str, is_one: bool) -> None:
    with contextlib.nullcontext() if is_one else pytest.raises(InvalidRequest, match="is not a package for pip"):
        check_requirement(text)
