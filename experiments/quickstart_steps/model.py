"""A small language model in JAX: a transformer that predicts the next token. Pure functions."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

# The model is so small that nothing is gained by an accelerator, for which JAX would look, and warn of what it misses.
jax.config.update("jax_platforms", "cpu")

Parameters = dict[str, Any]


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model.

    Attributes:
        vocabulary: Number of different tokens.
        sequence_length: Maximum number of tokens in the context.
        layers: Number of transformer blocks.
        width: Size of a token's embedding.
        heads: Number of attention heads, a divisor of `width`.
    """

    vocabulary: int
    sequence_length: int
    layers: int
    width: int
    heads: int


def init_parameters(shape: ModelShape, seed: int) -> Parameters:
    """Return random parameters, determined by the seed."""
    keys = iter(jax.random.split(jax.random.key(seed), 2 + 4 * shape.layers))

    def normal(*size: int) -> jax.Array:
        return 0.02 * jax.random.normal(next(keys), size, jnp.float32)

    width = shape.width
    blocks = [
        {
            "norm1": jnp.ones(width),
            "qkv": normal(width, 3 * width),
            "out": normal(width, width),
            "norm2": jnp.ones(width),
            "up": normal(width, 4 * width),
            "down": normal(4 * width, width),
        }
        for _ in range(shape.layers)
    ]
    return {
        "tokens": normal(shape.vocabulary, width),
        "positions": normal(shape.sequence_length, width),
        "blocks": blocks,
        "norm": jnp.ones(width),
    }


def count_parameters(parameters: Parameters) -> int:
    """Return the number of parameters."""
    return sum(int(leaf.size) for leaf in jax.tree.leaves(parameters))


def logits(parameters: Parameters, tokens: jax.Array, heads: int) -> jax.Array:
    """Return a score for each possible next token.

    Args:
        parameters: The parameters, from `init_parameters`.
        tokens: Integers of shape (batch, length), at most the model's sequence length.
        heads: Number of attention heads.

    Returns:
        An array of shape (batch, length, vocabulary).
    """
    x = parameters["tokens"][tokens] + parameters["positions"][: tokens.shape[1]]
    for block in parameters["blocks"]:
        x = x + _attention(block, _norm(x, block["norm1"]), heads)
        x = x + jax.nn.gelu(_norm(x, block["norm2"]) @ block["up"]) @ block["down"]
    # The tokens' own vectors score them, too.
    return _norm(x, parameters["norm"]) @ parameters["tokens"].T


def token_losses(parameters: Parameters, sequences: jax.Array, heads: int) -> jax.Array:
    """Return the loss in nats of each token except the first of each sequence, with shape (batch, length - 1)."""
    scores = jax.nn.log_softmax(logits(parameters, sequences[:, :-1], heads))
    return -jnp.take_along_axis(scores, sequences[:, 1:, None], axis=-1)[..., 0]


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return scale * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def _attention(block: Parameters, x: jax.Array, heads: int) -> jax.Array:
    batch, length, width = x.shape
    parts = jnp.split(x @ block["qkv"], 3, axis=-1)
    query, key, value = (part.reshape(batch, length, heads, width // heads) for part in parts)
    mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
    return mixed.reshape(batch, length, width) @ block["out"]
