"""Handmade packages and an index that serves them, so that tests need no build backend and no network."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from iris.python_tools.programs import find_python

_BACKEND = """
import pathlib, zipfile

NAME, VERSION = {name!r}, {version!r}

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    pathlib.Path("build-litter").write_text("as setuptools leaves it")
    info = f"{{NAME}}-{{VERSION}}.dist-info"
    files = {{f"{{NAME}}.py": pathlib.Path("python", f"{{NAME}}.py").read_text()}}
    files[f"{{info}}/METADATA"] = f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: {{VERSION}}\\n"
    files[f"{{info}}/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    record = "".join(f"{{file}},,\\n" for file in [*files, f"{{info}}/RECORD"])
    name = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w") as archive:
        for file, text in {{**files, f"{{info}}/RECORD": record}}.items():
            archive.writestr(file, text)
    return name

build_editable = build_wheel
"""


def make_wheel(path: Path, name: str, version: str, files: Mapping[str, str]) -> None:
    """Write a wheel with these contents by path."""
    dist_info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{dist_info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{dist_info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*contents, f"{dist_info}/RECORD"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**contents, f"{dist_info}/RECORD": record}.items():
            archive.writestr(file, text)


def write_package(folder: Path, name: str, version: str, code: str) -> None:
    """Write a project whose only module is importable only after a build."""
    (folder / "python").mkdir(parents=True, exist_ok=True)
    (folder / "python" / f"{name}.py").write_text(code)
    (folder / "backend.py").write_text(_BACKEND.format(name=name, version=version))
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "{version}"\nrequires-python = ">=3.9"\n\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )


def other_python(version: str) -> Path | None:
    """Return the bin directory of another Python ("3.12") on this machine; None if not installed."""
    program = find_python(version, os.environ.get("PATH", ""))
    return Path(program).parent if program else None
