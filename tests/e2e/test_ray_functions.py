"""Old experiments, whose steps are functions of Ray's own: the executor runs them on a real Ray cluster."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.ray, pytest.mark.timeout(300)]

FRAY_BACKENDS = ["ray"]
OLD_EXPERIMENT = """
import json
import os
from dataclasses import dataclass

import ray

from fray import ResourceConfig
from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path, versioned
from rigging.filesystem import open_url


@dataclass(frozen=True)
class CountConfig:
    numbers: int
    output_path: str


@dataclass(frozen=True)
class SumConfig:
    input_path: str
    output_path: str


def write(folder, value):
    found = {"value": value, "cpus": ray.get_runtime_context().get_assigned_resources()["CPU"]}
    with open_url(os.path.join(folder, "out.json"), "w") as file:
        json.dump(found, file)


@ray.remote(num_cpus=0.5)
def count(config):
    print("counting", config.numbers)
    os.system("echo in a child process")
    write(config.output_path, list(range(config.numbers)))
    return {"written": config.numbers}


@ray.remote(num_cpus=0.25)
def square(number):
    return number * number


@ray.remote
def add_squares(config):
    with open_url(os.path.join(config.input_path, "out.json"), "r") as file:
        numbers = json.load(file)["value"]
    write(config.output_path, sum(ray.get([square.remote(number) for number in numbers])))


@ray.remote(num_cpus=0.25)
def fail(config):
    print("looking for it")
    raise LookupError("no such shard")


@ray.remote(num_cpus=64)
def too_large(config):
    pass


numbers = ExecutorStep(name="old/count", fn=count, config=CountConfig(versioned(5), this_output_path()))
total = ExecutorStep(
    name="old/sum",
    fn=add_squares,
    config=SumConfig(output_path_of(numbers), this_output_path()),
    resources=ResourceConfig.with_cpu(cpu=0.5, ram="128m", disk="64m"),
)

def speak(config):
    print("in the job")


loud = ExecutorStep(
    name="old/loud",
    fn=speak,
    config=CountConfig(versioned(1), this_output_path()),
    resources=ResourceConfig.with_cpu(cpu=0.5, ram="128m", disk="64m"),
)
bad = ExecutorStep(name="old/fail", fn=fail, config=CountConfig(versioned(1), this_output_path()))
large = ExecutorStep(name="old/large", fn=too_large, config=CountConfig(versioned(1), this_output_path()))

if __name__ == "__main__":
    executor_main(steps=STEPS)
"""


def write_experiment(root: Path, steps: str) -> str:
    """The module that runs these of the old experiment's steps."""
    folder = root / "workspace" / "experiments"
    folder.mkdir(parents=True)
    (folder / "old.py").write_text(OLD_EXPERIMENT.replace("STEPS", steps))
    return "experiments.old"


def test_the_words_of_a_ray_function_that_fails(run: Callable[[str], str], tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        run(write_experiment(tmp_path, "[bad, large]"))
    told = str(caught.value)
    for line in (
        "step old/fail failed: LookupError: no such shard",
        'raise LookupError("no such shard")',
        "frames of the",
    ):
        assert line in told
    assert "function 'too_large' fits on no node of the cluster; the nearest: CPU: 64 requested, 16 available" in told
    for noise in ("\x1b", "site-packages/ray", "functions.py", "SIGTERM handler", "ray::"):
        assert noise not in told, told
    (failed,) = (tmp_path / "prefix").glob("old/fail-*")
    assert (failed / ".executor_status").read_text() == "FAILED"
    assert "looking for it\n" in (failed / ".log").read_text()


def test_steps_that_are_ray_functions_and_what_one_prints_in_its_job(run: Callable[[str], str], tmp_path: Path) -> None:
    assert "[old/loud] in the job\n" in run(write_experiment(tmp_path, "[total, loud]"))
    (counted,) = (tmp_path / "prefix").glob("old/count-*")
    (summed,) = (tmp_path / "prefix").glob("old/sum-*")
    first, second = [json.loads((path / "out.json").read_text()) for path in (counted, summed)]
    # Called by the executor itself, and inside of the job that a step with resources is; what it returns is kept.
    assert first == {"value": [0, 1, 2, 3, 4], "cpus": 0.5}
    assert second == {"value": 30, "cpus": 1}
    assert json.loads((counted / ".artifact").read_text()) == {"written": 5}
    assert "counting 5\nin a child process\n" in (counted / ".log").read_text()
