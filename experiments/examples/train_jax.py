"""Train a small network with JAX and checkpoints: a preempted run resumes from the last checkpoint.

uv run --extra quickstart-model python -m experiments.examples.train_jax

PREEMPT_AT=1000 kills the run after its 1,000th step, like a preempted machine.
"""

import io
import os
import signal
from dataclasses import dataclass
from typing import Any

from marin.execution import ExecutorStep, executor_main, progress, step_lease, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import open_url, read_bytes_or_none, write_bytes_atomic

CHECKPOINT_EVERY = 400


@dataclass(frozen=True)
class TrainConfig:
    steps: int
    hidden: int
    rate: float
    output_path: str


def save(path: str, step: int, parameters: dict[str, Any]) -> None:
    """Replace the checkpoint atomically: a kill leaves the previous one."""
    import numpy as np

    content = io.BytesIO()
    np.savez(content, step=step, **parameters)
    step_lease().check()  # raises where another run has taken the step over
    write_bytes_atomic(path, content.getvalue())


def load(path: str) -> tuple[int, dict[str, Any]] | None:
    """Return the step and the parameters of the checkpoint; None without a checkpoint."""
    import numpy as np

    content = read_bytes_or_none(path)
    if content is None:
        return None
    with np.load(io.BytesIO(content)) as arrays:
        parameters = {name: arrays[name] for name in arrays.files if name != "step"}
        return int(arrays["step"]), parameters


def train(config: TrainConfig) -> None:
    """Fit sin(x) on 256 points by full-batch gradient descent."""
    import jax
    import jax.numpy as jnp

    xs = jnp.linspace(-3.0, 3.0, 256)[:, None]
    ys = jnp.sin(xs)

    def loss_of(parameters: dict[str, Any]) -> Any:
        hidden = jnp.tanh(xs @ parameters["in"] + parameters["bias"])
        return jnp.mean((hidden @ parameters["out"] - ys) ** 2)

    def descend(parameters: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        loss, gradient = jax.value_and_grad(loss_of)(parameters)
        return jax.tree.map(lambda value, slope: value - config.rate * slope, parameters, gradient), loss

    update = jax.jit(descend)

    checkpoint = os.path.join(config.output_path, "checkpoint.npz")
    found = load(checkpoint)
    if found is None:
        one, two = jax.random.split(jax.random.key(0))
        begun, parameters = (
            0,
            {
                "in": jax.random.normal(one, (1, config.hidden)),
                "bias": jnp.zeros(config.hidden),
                "out": jax.random.normal(two, (config.hidden, 1)) / config.hidden,
            },
        )
    else:
        begun, parameters = found
        print(f"resuming from the checkpoint of step {begun}", flush=True)
    for step in range(begun + 1, config.steps + 1):
        parameters, loss = update(parameters)
        progress(step, config.steps)
        if step % CHECKPOINT_EVERY == 0:
            print(f"step {step}: loss {float(loss):.2f}", flush=True)
            save(checkpoint, step, parameters)
        if step == int(os.environ.get("PREEMPT_AT", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
    with open_url(os.path.join(config.output_path, "loss.txt"), "w") as file:
        file.write(f"{float(loss):.4f}\n")


def make_step() -> ExecutorStep[TrainConfig]:
    """Return the training step."""
    return ExecutorStep(
        name="examples/train_jax",
        fn=remote(train, pip_dependency_groups=["quickstart-model"]),
        config=TrainConfig(versioned(2000), versioned(32), versioned(0.03), this_output_path()),
    )


if __name__ == "__main__":
    executor_main(steps=[make_step()], description="Train with JAX")
