"""The files of a project that `marin init` creates, as text. This module does no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rigging.errors import InvalidRequest

TEMPLATES: Final = ("first", "sweep", "train", "data")
_PACKAGES: Final[Mapping[str, Sequence[str]]] = {"train": ("numpy>=2",)}
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Installed:
    """The installation of one of marin's libraries, from its `direct_url.json`.

    Args:
        name: The name of the distribution.
        version: Its version.
        source: Its table in `[tool.uv.sources]`, as TOML; empty for a package index.
    """

    name: str
    version: str
    source: str = ""


def source_of(direct_url: Mapping[str, object] | None) -> str:
    """Return the uv source that installs a distribution the way it was installed; empty for an index.

    Args:
        direct_url: The content of its `direct_url.json`, or None.
    """
    if not direct_url:
        return ""
    url = str(direct_url["url"])
    match direct_url:
        case {"vcs_info": {"commit_id": str(commit)}}:
            below = direct_url.get("subdirectory")
            return f"{{ git = {json.dumps(url)}, rev = {json.dumps(commit)}" + (
                f", subdirectory = {json.dumps(below)} }}" if below else " }"
            )
        case {"dir_info": {"editable": True}}:
            return f"{{ path = {json.dumps(_path(url))}, editable = true }}"
        case _ if url.startswith("file://"):
            return f"{{ path = {json.dumps(_path(url))} }}"
    return f"{{ url = {json.dumps(url)} }}"


def project_files(name: str, template: str, code: str, libraries: Sequence[Installed]) -> dict[str, str]:
    """Return the files of a new project, keyed by their paths below its folder.

    Args:
        name: The project's name.
        template: One of TEMPLATES.
        code: The code of the template's experiment.
        libraries: Marin's libraries; the project depends on the first one.

    Raises:
        InvalidRequest: The name is not valid for a project.
    """
    if name.lower().replace("_", "-") in {library.name for library in libraries}:
        raise InvalidRequest(
            f"project name {name!r}: the project depends on the library of this name; give another with --name"
        )
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"project name {name!r}: use letters and digits, with . _ - between them; set it with --name"
        )
    return {
        "pyproject.toml": _pyproject(name, template, libraries),
        "experiments/__init__.py": "",
        "experiments/first.py": code,
        "tests/test_first.py": _TEST,
        ".gitignore": ".venv/\n__pycache__/\n*.pyc\n.pytest_cache/\n.env\n",
        ".vscode/launch.json": json.dumps(_LAUNCH, indent=2) + "\n",
    }


def _path(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path)


def _pyproject(name: str, template: str, libraries: Sequence[Installed]) -> str:
    first = libraries[0]
    needed = [f"{first.name}[browser]=={first.version}", *_PACKAGES.get(template, ())]
    sources = [f"{library.name} = {library.source}" for library in libraries if library.source]
    # Only what is a dependency or an override has a source: the other libraries are dependencies, too, then.
    needed += [library.name for library in libraries[1:] if library.source]
    lines = [
        "[project]",
        f"name = {json.dumps(name)}",
        'version = "0.1.0"',
        'requires-python = ">=3.11"',
        f"dependencies = [{', '.join(json.dumps(item) for item in needed)}]",
        "",
        "[dependency-groups]",
        'dev = ["pytest>=8.4"]',
        "",
        "[tool.uv]",
        "package = false",
        "",
        *(["[tool.uv.sources]", *sources, ""] if sources else []),
        "[tool.pytest.ini_options]",
        'pythonpath = ["."]',
        'testpaths = ["tests"]',
    ]
    return "\n".join(lines) + "\n"


_TEST: Final = '''"""The experiment, with a client that runs its jobs in this process: no cluster, no network."""

from fray import LocalClient, set_current_client
from marin.execution import Executor

from experiments import first


def test_every_step_leaves_an_output(tmp_path):
    with set_current_client(LocalClient()):
        paths = Executor(str(tmp_path), str(tmp_path / "experiments")).run(first.steps)
    assert paths
    for step, path in paths.items():
        assert path.startswith(str(tmp_path)), step.name
'''

_LAUNCH: Final = {
    "version": "0.2.0",
    "configurations": [
        {
            "name": "experiments.first",
            "type": "debugpy",
            "request": "launch",
            "module": "experiments.first",
            "justMyCode": False,
            "env": {"MARIN_PREFIX": "${workspaceFolder}/outputs"},
        },
        {"name": "tests", "type": "debugpy", "request": "launch", "module": "pytest", "justMyCode": False},
    ],
}
