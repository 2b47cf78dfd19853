"""Train the model, with checkpoints from which a killed run resumes."""

import io
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from experiments.quickstart_steps.extras import needs_extra
from experiments.quickstart_steps.storage import read_bytes, read_json, write_json
from experiments.quickstart_steps.tokens import load_train, read_manifest
from marin.execution import progress, step_lease
from rigging.errors import InvalidRequest
from rigging.filesystem import url_to_fs, write_bytes_atomic

if TYPE_CHECKING:
    import numpy as np

    from experiments.quickstart_steps.model import ModelShape

_CHECKPOINT: Final = re.compile(r"step-(\d{6})\.npz")
_KEPT_CHECKPOINTS: Final = 2
PARAMETERS: Final = "parameters.npz"


@dataclass(frozen=True)
class TrainConfig:
    """The settings of the training.

    Attributes:
        tokens: The folder of packed tokens.
        steps: Number of batches to train on.
        batch: Number of sequences in a batch.
        learning_rate: Peak learning rate: warm-up over a tenth of the steps, then decay to a tenth of the peak.
        layers: Number of transformer blocks.
        width: Size of a token's embedding.
        heads: Number of attention heads.
        seed: Random seed of the initial parameters and of the order of the sequences.
        checkpoint_every: Steps between checkpoints, without effect on the result.
        output_path: Receives `parameters.npz`, `stats.json`, and `checkpoints/` during the training.
    """

    tokens: str
    steps: int
    batch: int
    learning_rate: float
    layers: int
    width: int
    heads: int
    seed: int
    checkpoint_every: int
    output_path: str


@dataclass
class TrainState:
    """The complete state of the training.

    Attributes:
        step: Number of completed steps.
        leaves: The arrays of parameters and optimizer, in JAX's order of their trees.
        losses: The mean loss of each step's batch in nats a token.
    """

    step: int
    leaves: list[Any]
    losses: list[float]


def batch_rows(sequences: int, batch: int, seed: int, step: int) -> "np.ndarray[Any, Any]":
    """Return the indices of a step's sequences, in a new random order for each epoch."""
    import numpy as np

    first = step * batch
    rows: list[int] = []
    while len(rows) < batch:
        epoch, place = divmod(first + len(rows), sequences)
        order = np.random.default_rng((seed, epoch)).permutation(sequences)
        rows += order[place : place + batch - len(rows)].tolist()
    return np.array(rows)


def train_model(config: TrainConfig, on_step: Callable[[int], object] | None = None) -> None:
    """Train from the last checkpoint, or from the beginning, and write the parameters.

    Args:
        config: The settings.
        on_step: Called after each step, and its checkpoint if due, with the number of completed steps.

    Raises:
        InvalidRequest: There are fewer sequences than a batch needs, or a number is out of range.
    """
    with needs_extra("training"):
        import jax

        from experiments.quickstart_steps.model import count_parameters

    manifest = read_manifest(config.tokens)
    _check(config, manifest)
    sequences = load_train(config.tokens)
    start, structure, update = _make_update(config, manifest)
    state = _last_checkpoint(config.output_path, len(start)) or TrainState(0, start, [])
    if state.step:
        print(f"resuming from the checkpoint of step {state.step} of {config.steps}", flush=True)
    for step in range(state.step, config.steps):
        rows = batch_rows(len(sequences), config.batch, config.seed, step)
        state.leaves, loss = update(state.leaves, sequences[rows].astype("int32"))
        state.losses.append(float(loss))
        state.step = step + 1
        progress(state.step, config.steps)
        if not math.isfinite(state.losses[-1]):
            raise InvalidRequest(f"the loss of step {step} is {state.losses[-1]}; try a lower learning rate")
        if state.step % config.checkpoint_every == 0 and state.step < config.steps:
            step_lease().check()
            _save_checkpoint(config.output_path, state)
        if on_step is not None:
            on_step(state.step)
    parameters, _ = jax.tree.unflatten(structure, state.leaves)
    write_bytes_atomic(os.path.join(config.output_path, PARAMETERS), _as_npz(jax.tree.leaves(parameters)))
    stats = {
        "parameters": count_parameters(parameters),
        "shape": asdict(model_shape(config, manifest)),
        "steps": config.steps,
        "tokens_per_step": config.batch * manifest["sequence_length"],
        "losses": [round(loss, 5) for loss in state.losses],
    }
    write_json(os.path.join(config.output_path, "stats.json"), stats)
    _remove(config.output_path, keep=0)


def model_shape(config: TrainConfig, manifest: dict[str, Any]) -> "ModelShape":
    """Return the sizes of the model for a config and its tokens."""
    from experiments.quickstart_steps.model import ModelShape

    return ModelShape(manifest["vocabulary"], manifest["sequence_length"], config.layers, config.width, config.heads)


def read_shape(folder: str) -> "ModelShape":
    """Return the sizes of the model in the folder of a training step."""
    from experiments.quickstart_steps.model import ModelShape

    return ModelShape(**read_json(os.path.join(folder, "stats.json"))["shape"])


def load_leaves(content: bytes) -> list[Any]:
    """Return the arrays of a file, in order."""
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return [file[f"{index:04}"] for index in range(sum(name.isdigit() for name in file.files))]


def _check(config: TrainConfig, manifest: dict[str, Any]) -> None:
    for name in ("steps", "batch", "layers", "width", "heads", "checkpoint_every"):
        if getattr(config, name) < 1:
            raise InvalidRequest(f"training: {name} is {getattr(config, name)}, and must be 1 or more")
    if config.width % config.heads:
        raise InvalidRequest(f"training: width {config.width} cannot be divided among {config.heads} heads")
    found = manifest["train"]["sequences"]
    if found < config.batch:
        raise InvalidRequest(
            f"too little text to train on: {manifest['train']['tokens']} tokens make {found} sequences of "
            f"{manifest['sequence_length']}, and one batch has {config.batch}; give more pages"
        )


Update = Callable[[list[Any], Any], tuple[list[Any], Any]]


def _make_update(config: TrainConfig, manifest: dict[str, Any]) -> tuple[list[Any], Any, Update]:
    """Return the initial state as a list of arrays, its tree structure, and the update function."""
    import jax
    import optax

    from experiments.quickstart_steps.model import init_parameters, token_losses

    warm_up = max(1, config.steps // 10)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, warm_up, max(config.steps, warm_up + 1), config.learning_rate / 10
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))
    parameters = init_parameters(model_shape(config, manifest), config.seed)
    start, structure = jax.tree.flatten((parameters, optimizer.init(parameters)))

    def mean_loss(parameters: Any, sequences: Any) -> Any:
        return token_losses(parameters, sequences, config.heads).mean()

    def update(leaves: list[Any], sequences: Any) -> tuple[list[Any], Any]:
        parameters, optimizer_state = jax.tree.unflatten(structure, leaves)
        loss, gradients = jax.value_and_grad(mean_loss)(parameters, sequences)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        return jax.tree.leaves((parameters, optimizer_state)), loss

    return start, structure, jax.jit(update)


def _as_npz(leaves: list[Any], **more: Any) -> bytes:
    import numpy as np

    content = io.BytesIO()
    arrays: dict[str, Any] = {f"{index:04}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
    np.savez(content, **arrays, **more)
    return content.getvalue()


def _checkpoints(output_path: str) -> Iterator[tuple[int, str]]:
    """Yield the step and the path of each checkpoint, newest first."""
    folder = os.path.join(output_path, "checkpoints")
    fs, root = url_to_fs(folder)
    names = [os.path.basename(str(path)) for path in fs.ls(root, detail=False)] if fs.exists(root) else []
    for name in sorted(names, reverse=True):
        match = _CHECKPOINT.fullmatch(name)
        if match:
            yield int(match.group(1)), os.path.join(folder, name)


def _save_checkpoint(output_path: str, state: TrainState) -> None:
    path = os.path.join(output_path, "checkpoints", f"step-{state.step:06}.npz")
    write_bytes_atomic(path, _as_npz(state.leaves, losses=state.losses))
    _remove(output_path, keep=_KEPT_CHECKPOINTS)


def _last_checkpoint(output_path: str, leaves: int) -> TrainState | None:
    """Return the newest checkpoint. Checkpoints are written atomically."""
    import numpy as np

    for step, path in _checkpoints(output_path):
        content = read_bytes(path)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            losses = [float(loss) for loss in file["losses"]]
        arrays = load_leaves(content)
        if len(arrays) == leaves and len(losses) == step:
            return TrainState(step, arrays, losses)
        print(f"{path} belongs to another model and is ignored", flush=True)
    return None


def _remove(output_path: str, keep: int) -> None:
    for _, path in list(_checkpoints(output_path))[keep:]:
        fs, place = url_to_fs(path)
        fs.rm(place)
