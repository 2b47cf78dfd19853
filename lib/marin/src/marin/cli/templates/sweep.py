"""A sweep: one job per learning rate, and a step that picks the best one.

python -m experiments.first                   # in this process
iris job run -- python -m experiments.first   # as a job, on a cluster that starts by itself
"""

import json
from dataclasses import dataclass

from fray import ResourceConfig
from marin.execution import ExecutorStep, InputName, executor_main, output_path_of, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import open_url

LEARNING_RATES = (0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class TrialConfig:
    learning_rate: float
    output_path: str


def run_trial(config: TrialConfig) -> None:
    """Minimise x² from x = 10 in twenty steps, and write the loss."""
    x = 10.0
    for _ in range(20):
        x -= config.learning_rate * 2 * x
    with open_url(f"{config.output_path}/loss.json", "w") as file:
        json.dump({"learning_rate": config.learning_rate, "loss": x * x}, file)


@dataclass(frozen=True)
class BestConfig:
    trials: list[InputName | str]
    output_path: str


def find_best(config: BestConfig) -> None:
    """Write the trial with the lowest loss."""
    trials = []
    for path in config.trials:
        with open_url(str(path), "r") as file:
            trials.append(json.load(file))
    best = min(trials, key=lambda trial: trial["loss"])
    print(f"best of {len(trials)}: learning rate {best['learning_rate']}, loss {best['loss']:.3g}")
    with open_url(f"{config.output_path}/best.json", "w") as file:
        json.dump(best, file)


# The experiment. A learning rate that is added runs alone: the other outputs are there.
trials = [
    ExecutorStep(
        name=f"sweep/lr={rate}",
        fn=remote(run_trial, resources=ResourceConfig.with_cpu(cpu=1, ram="500m")),
        config=TrialConfig(learning_rate=versioned(rate), output_path=this_output_path()),
    )
    for rate in LEARNING_RATES
]
best = ExecutorStep(
    name="sweep/best",
    fn=find_best,
    config=BestConfig([output_path_of(trial, "loss.json") for trial in trials], output_path=this_output_path()),
)
steps = [best]


if __name__ == "__main__":
    executor_main(steps=steps, description="A sweep over learning rates.")
