"""Every published example of a version and its path."""

import json
from pathlib import Path
from typing import Any

import pytest

import marin.execution
from fray.types import ResourceConfig
from marin.execution import Executor, compute_output_path
from marin.execution.step_spec import StepSpec

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "versions.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    names = {name: getattr(marin.execution, name) for name in marin.execution.__all__}
    names["ResourceConfig"] = ResourceConfig
    # dataclass() looks its class's module up.
    names["__name__"] = __name__
    exec(VECTORS["preamble"], names)
    return names


@pytest.mark.parametrize("row", VECTORS["steps"], ids=lambda row: f"{row['x']}, {row['y']}")
def test_version_and_path_of_a_step(row: dict[str, str], names: dict[str, Any]) -> None:
    config = names["Config"](eval(row["x"], names), eval(row["y"], names))
    step = names["ExecutorStep"]("n", names["fn"], config)

    executor = Executor("/p", "/p/experiments")
    executor.compute_version(step)

    assert executor.version_strs[step] == row["version"]
    assert json.dumps(executor.versions[step], sort_keys=True) == row["version"]
    assert executor.version_str_to_step[row["version"]] is step
    assert executor.output_paths[step] == row["path"]
    assert row["path"].endswith(executor.hashed_versions[step])
    assert compute_output_path("n", config, prefix="/p") == row["path"]


def test_step_specs() -> None:
    known: dict[str, Any] = {"StepSpec": StepSpec}
    for row in VECTORS["step_specs"]:
        spec = known[row["name_with_hash"].split("_")[0]] = eval(row["expr"], known)
        assert (spec.hash_id, spec.name_with_hash, spec.output_path) == (
            row["hash_id"],
            row["name_with_hash"],
            row["output_path"],
        )
