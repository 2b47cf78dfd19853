"""How well the model says text that it has not learnt from."""

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from experiments.quickstart_steps.extras import needs_extra
from experiments.quickstart_steps.storage import read_bytes, write_json
from experiments.quickstart_steps.tokens import end_of_text, load_heldout, load_tokenizer, load_train, read_manifest
from experiments.quickstart_steps.training import PARAMETERS, load_leaves, read_shape

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

    from experiments.quickstart_steps.model import ModelShape

_SAMPLE_TEMPERATURE: Final = 0.7


@dataclass(frozen=True)
class EvaluateConfig:
    """What to evaluate.

    Attributes:
        model: The folder of the training's step.
        tokens: The folder of packed tokens.
        tokenizer: The folder of the tokenizer's step.
        sample_tokens: Length of a text to let the model write; 0 for none.
        output_path: Gets `stats.json`.
    """

    model: str
    tokens: str
    tokenizer: str
    sample_tokens: int
    output_path: str


def bits_per_byte(loss: float, tokens: int, size: int) -> float:
    """Return the mean loss of so many tokens (nats) as bits for each byte of their text."""
    return loss * tokens / math.log(2) / size


def unigram_loss(train: "np.ndarray[Any, Any]", heldout: "np.ndarray[Any, Any]", vocabulary: int) -> float:
    """Return the mean loss in nats of a model that knows how frequent each token is, and nothing else."""
    import numpy as np

    counts = np.bincount(train.ravel(), minlength=vocabulary) + 1.0
    return float(-np.log(counts / counts.sum())[heldout].mean())


def windows(tokens: "np.ndarray[Any, Any]", length: int) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """Cut tokens into rows of `length + 1` so that every token but the first is once to be said.

    Returns:
        The rows, the last of them filled up, and for each of them which of its `length` tokens to say are real.
    """
    import numpy as np

    count = max(1, math.ceil((len(tokens) - 1) / length))
    padded = np.zeros(count * length + 1, dtype=np.int32)
    padded[: len(tokens)] = tokens
    rows = np.stack([padded[row * length : (row + 1) * length + 1] for row in range(count)])
    return rows, (np.arange(count * length) < len(tokens) - 1).reshape(count, length)


def evaluate_model(config: EvaluateConfig) -> None:
    """Write the held-out loss, what simpler models would have, and a text that the model writes."""
    with needs_extra("evaluation"):
        import jax
        import numpy as np

        from experiments.quickstart_steps.model import init_parameters, token_losses

    manifest = read_manifest(config.tokens)
    shape = read_shape(config.model)
    structure = jax.tree.structure(init_parameters(shape, 0))
    leaves = load_leaves(read_bytes(os.path.join(config.model, PARAMETERS)))
    parameters = jax.tree.unflatten(structure, [jax.numpy.asarray(leaf) for leaf in leaves])
    heldout = load_heldout(config.tokens)
    rows, real = windows(heldout, shape.sequence_length)
    losses = jax.jit(lambda some: token_losses(parameters, some, shape.heads))
    found = np.concatenate([np.asarray(losses(rows[at : at + 1])) for at in range(len(rows))])
    loss, tokens = float(found[real].mean()), int(real.sum())
    size = manifest["heldout"]["bytes"]
    unigram = unigram_loss(load_train(config.tokens)[:, 1:], heldout[1:], shape.vocabulary)
    stats = {
        "heldout_loss": round(loss, 5),
        "heldout_tokens": tokens,
        "heldout_bytes": size,
        "bits_per_byte": round(bits_per_byte(loss, tokens, size), 5),
        "uniform": _figures(math.log(shape.vocabulary), tokens, size),
        "unigram": _figures(unigram, tokens, size),
        "sample": write_text(parameters, shape, load_tokenizer(config.tokenizer), config.sample_tokens),
    }
    write_json(os.path.join(config.output_path, "stats.json"), stats)


def write_text(parameters: Any, shape: "ModelShape", tokenizer: "Tokenizer", length: int) -> str:
    """Return a text of so many tokens that the model writes from the beginning; it is the same each time."""
    import jax
    import jax.numpy as jnp

    from experiments.quickstart_steps.model import logits

    end = end_of_text(tokenizer)

    def next_token(tokens: Any, last: Any, key: Any) -> Any:
        scores = logits(parameters, tokens[None], shape.heads)[0, last]
        # A text that is over at once would show nothing.
        return jax.random.categorical(key, scores.at[end].set(-jnp.inf) / _SAMPLE_TEMPERATURE)

    choose = jax.jit(next_token)
    written = [end]
    for key in jax.random.split(jax.random.key(0), length):
        window = written[-shape.sequence_length :]
        tokens = jnp.array(window + [end] * (shape.sequence_length - len(window)))
        written.append(int(choose(tokens, len(window) - 1, key)))
    text: str = tokenizer.decode(written[1:])
    return text


def _figures(loss: float, tokens: int, size: int) -> dict[str, float]:
    return {"loss": round(loss, 5), "bits_per_byte": round(bits_per_byte(loss, tokens, size), 5)}
