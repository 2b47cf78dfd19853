"""Log a sweep of three learning rates to W&B without its server, and sync the files later.

uv run --extra examples-wandb python -m experiments.examples.wandb_offline
"""

import os
from dataclasses import dataclass

from experiments.examples.tracking import RATES, losses
from marin.execution import ExecutorStep, executor_main, this_output_path, versioned
from marin.execution.remote import remote


@dataclass(frozen=True)
class TrainConfig:
    rate: float
    output_path: str


def train(config: TrainConfig) -> None:
    """Log every step's loss into the step's output."""
    import wandb

    # W&B writes local files, so the output has to be a local path. On a bucket: write to a temporary folder, then copy.
    os.makedirs(config.output_path, exist_ok=True)
    run = wandb.init(
        project="examples",
        name=f"rate-{config.rate}",
        config={"rate": config.rate},
        dir=config.output_path,
        mode="offline",
        settings=wandb.Settings(silent=True, console="off"),
    )
    for loss in losses(config.rate):
        run.log({"loss": loss})
    run.finish()
    print(f"rate {config.rate}: last loss {loss:.3g}", flush=True)


def make_steps() -> list[ExecutorStep[TrainConfig]]:
    """Return one step for each learning rate."""
    return [
        ExecutorStep(
            name=f"examples/wandb-{rate}",
            fn=remote(train, pip_dependency_groups=["examples-wandb"]),
            config=TrainConfig(versioned(rate), this_output_path()),
        )
        for rate in RATES
    ]


if __name__ == "__main__":
    executor_main(steps=make_steps(), description="W&B offline")
