"""Training that resumes: it writes a checkpoint every hundred steps and continues from it after a preemption or
failure.

python -m experiments.first                   # in this process
iris job run -- python -m experiments.first   # as a job, on a cluster that starts by itself
"""

import json
from dataclasses import dataclass

import numpy as np

from fray import ResourceConfig
from marin.execution import ExecutorStep, executor_main, progress, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import atomic_write, open_url, url_to_fs


@dataclass(frozen=True)
class TrainConfig:
    learning_rate: float
    steps: int
    output_path: str


def train(config: TrainConfig) -> None:
    """Fit a line to noisy points, and write the loss over time."""
    points = np.random.default_rng(0)
    x = points.normal(size=1000)
    y = 3.0 * x + 1.0 + 0.1 * points.normal(size=1000)
    checkpoint = f"{config.output_path}/checkpoint.json"
    state = {"step": 0, "slope": 0.0, "offset": 0.0}
    fs, path = url_to_fs(checkpoint)
    if fs.exists(path):
        with open_url(checkpoint, "r") as file:
            state = json.load(file)
        print(f"continues at step {state['step']}")
    for step in range(int(state["step"]), config.steps):
        error = state["slope"] * x + state["offset"] - y
        state["slope"] -= config.learning_rate * float(np.mean(error * x))
        state["offset"] -= config.learning_rate * float(np.mean(error))
        if (step + 1) % 100 == 0 or step + 1 == config.steps:
            state["step"] = step + 1
            progress(step + 1, config.steps)
            with atomic_write(checkpoint, "w") as file:
                json.dump(state, file)
            print(f"step {step + 1}: loss {float(np.mean(error**2)):.4f}")


# The experiment. A job that fails is started again twice, and goes on at its last checkpoint.
line = ExecutorStep(
    name="train/line",
    fn=remote(train, resources=ResourceConfig.with_cpu(cpu=1, ram="1g"), retries=2),
    config=TrainConfig(learning_rate=versioned(0.1), steps=versioned(500), output_path=this_output_path()),
)
steps = [line]


if __name__ == "__main__":
    executor_main(steps=steps, description="Train, with checkpoints.")
