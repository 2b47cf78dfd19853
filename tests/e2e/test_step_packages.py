"""Steps with packages of their own: versions that exclude each other, in one experiment."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.ray, pytest.mark.timeout(300)]

FRAY_BACKENDS = ["ray"]
EXPERIMENT = """
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from marin.execution import ExecutorStep, executor_main, this_output_path


@dataclass(frozen=True)
class Config:
    output_path: str


def look(config):
    import tidbit

    code = "import tidbit; print(tidbit.VERSION)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    with open(os.path.join(config.output_path, "found.json"), "w") as file:
        json.dump([tidbit.VERSION, child], file)


def bare(config):
    try:
        import tidbit
    except ModuleNotFoundError:
        found = "none"
    else:
        found = tidbit.VERSION
    with open(os.path.join(config.output_path, "found.json"), "w") as file:
        json.dump(found, file)


steps = [
    ExecutorStep(name=f"look/{version}", fn=look, config=Config(this_output_path()), pip_dependency_groups=[wheel])
    for version, wheel in WHEELS.items()
]
plain = ExecutorStep(name="look/none", fn=bare, config=Config(this_output_path()), pip_dependency_groups=[OTHER])

if __name__ == "__main__":
    executor_main(steps=[*steps, plain])
"""


def make_wheel(folder: Path, name: str, version: str) -> str:
    """A wheel of one module, that needs no index to be installed."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return str(path)


def test_each_step_has_its_own_version(run: Callable[[str], str], tmp_path: Path) -> None:
    wheels = {version: make_wheel(tmp_path, "tidbit", version) for version in ("1.0", "2.0")}
    folder = tmp_path / "workspace" / "experiments"
    folder.mkdir(parents=True)
    other = make_wheel(tmp_path, "unrelated", "1.0")
    (folder / "packages.py").write_text(f"WHEELS = {wheels!r}\nOTHER = {other!r}\n{EXPERIMENT}")
    run("experiments.packages")
    found = {
        path.parent.name.rpartition("-")[0]: json.loads(path.read_text())
        for path in (tmp_path / "prefix").glob("look/*/found.json")
    }
    assert found == {"1.0": ["1.0", "1.0"], "2.0": ["2.0", "2.0"], "none": "none"}
