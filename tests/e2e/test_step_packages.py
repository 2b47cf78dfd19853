"""Steps with packages of their own: versions that exclude each other, in one experiment."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.iris.packages import make_wheel

pytestmark = [pytest.mark.process, pytest.mark.ray, pytest.mark.timeout(300)]

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
    try:
        import tidbit
    except ModuleNotFoundError:
        found = "none"
    else:
        code = "import tidbit; print(tidbit.VERSION)"
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        found = [tidbit.VERSION, child]
    with open(os.path.join(config.output_path, "found.json"), "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    executor_main(steps=[
        ExecutorStep(name=f"look/{name}", fn=look, config=Config(this_output_path()), pip_dependency_groups=[wheel])
        for name, wheel in WHEELS.items()
    ])
"""


def test_each_step_has_its_own_version(run: Callable[[str], str], tmp_path: Path) -> None:
    wheels = {}
    for step, (name, version) in {"1": ("tidbit", "1.0"), "2": ("tidbit", "2.0"), "no": ("unrelated", "1.0")}.items():
        wheel = tmp_path / f"{name}-{version}-py3-none-any.whl"
        make_wheel(wheel, name, version, {f"{name}.py": f"VERSION = {version!r}\n"})
        wheels[step] = str(wheel)
    folder = tmp_path / "workspace" / "experiments"
    folder.mkdir(parents=True)
    (folder / "packages.py").write_text(f"WHEELS = {wheels!r}\n{EXPERIMENT}")
    run("experiments.packages")
    found = (tmp_path / "prefix").glob("look/*/found.json")
    versions = {path.parent.name.rpartition("-")[0]: json.loads(path.read_text()) for path in found}
    assert versions == {"1": ["1.0", "1.0"], "2": ["2.0", "2.0"], "no": "none"}
