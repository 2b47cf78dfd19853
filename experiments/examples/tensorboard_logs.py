"""Log a sweep of three learning rates for TensorBoard.

uv run --extra examples-tensorboard python -m experiments.examples.tensorboard_logs
uv run --extra examples-tensorboard tensorboard --logdir /tmp/marin/examples/tensorboard
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
    from tensorboardX import SummaryWriter

    with SummaryWriter(os.path.join(config.output_path, "events")) as writer:
        for step, loss in enumerate(losses(config.rate)):
            writer.add_scalar("loss", loss, step)
    print(f"rate {config.rate}: last loss {loss:.3g}", flush=True)


def make_steps() -> list[ExecutorStep[TrainConfig]]:
    """Return one step for each learning rate."""
    return [
        ExecutorStep(
            name=f"examples/tensorboard/rate-{rate}",
            fn=remote(train, pip_dependency_groups=["examples-tensorboard"]),
            config=TrainConfig(versioned(rate), this_output_path()),
        )
        for rate in RATES
    ]


if __name__ == "__main__":
    executor_main(steps=make_steps(), description="TensorBoard")
