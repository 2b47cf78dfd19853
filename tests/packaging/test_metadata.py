"""What the wheels say of themselves, and that the libraries' versions move together."""

import importlib
import re
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.user import LIBRARIES, REPOSITORY


def project(library: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((REPOSITORY / "lib" / library / "pyproject.toml").read_text())["project"]
    return table


@pytest.mark.parametrize("library", LIBRARIES)
def test_siblings_are_pinned_to_the_version_that_they_have(library: str) -> None:
    table = project(library)
    optional = table.get("optional-dependencies", {}).values()
    pins: list[str] = [*table["dependencies"], *(text for texts in optional for text in texts)]
    for requirement in pins:
        named = re.match(r"marin[a-z-]*", requirement)
        if named is None or named.group() == table["name"]:
            continue
        other = next(folder for folder, name in LIBRARIES.items() if name == named.group())
        assert requirement.partition("==")[2] == project(other)["version"], requirement


def test_all_have_one_version() -> None:
    workspace = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert {project(library)["version"] for library in LIBRARIES} == {workspace}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_tells_its_version(library: str) -> None:
    module = importlib.import_module(library)
    assert module.__version__ == project(library)["version"]
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


@pytest.mark.process
def test_what_is_in_the_wheels(wheels: Path) -> None:
    found = {path.name.partition("-")[0]: path for path in wheels.glob("*.whl")}
    assert set(found) == {name.replace("-", "_") for name in LIBRARIES.values()}
    for library, name in LIBRARIES.items():
        with zipfile.ZipFile(found[name.replace("-", "_")]) as wheel:
            names = wheel.namelist()
            (place,) = (path for path in names if path.endswith(".dist-info/METADATA"))
            told = HeaderParser().parsestr(wheel.read(place).decode())
        assert f"{library}/py.typed" in names
        assert any(path.endswith("licenses/LICENSE") for path in names)
        assert told["License-Expression"] == "Apache-2.0"
        assert "Operating System :: POSIX :: Linux" in told.get_all("Classifier", [])
        assert "Typing :: Typed" in told.get_all("Classifier", [])
        source = REPOSITORY / "lib" / library / "src" / library
        ours = {str(path.relative_to(source.parent)) for path in source.rglob("*") if path.is_file()}
        lacking = {path for path in ours if not {"__pycache__", ".hypothesis"} & set(path.split("/"))} - set(names)
        assert not lacking, f"{name} lacks {lacking}"
        for other in LIBRARIES.values():
            assert other not in told.get_all("Requires-Dist", []), "a sibling without a version"
