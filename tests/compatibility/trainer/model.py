"""The network: points of a plane, two classes, one hidden layer. NumPy only, bit for bit the same in every run.

The order in which NumPy sums depends on where an array lies in memory. So gradients are computed with 64 bits, and what
is kept has 32.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The network's size."""

    hidden: int = 16
    inputs: int = 2

    @property
    def flops_per_example(self):
        """Floating-point operations of one example, forward and backward."""
        return 6 * (self.inputs * self.hidden + self.hidden)


def init(config, seed):
    """Make parameters."""
    rng = np.random.default_rng(seed)
    params = {
        "w1": rng.normal(0, 1 / np.sqrt(config.inputs), (config.inputs, config.hidden)),
        "b1": np.zeros(config.hidden),
        "w2": rng.normal(0, 1 / np.sqrt(config.hidden), config.hidden),
        "b2": np.zeros(1),
    }
    return {name: array.astype(np.float32) for name, array in params.items()}


def predict(params, points):
    """Return hidden activations and the probability of class 1."""
    params = {name: array.astype(np.float64) for name, array in params.items()}
    hidden = np.tanh(points @ params["w1"] + params["b1"])
    return hidden, 1 / (1 + np.exp(-(hidden @ params["w2"] + params["b2"])))


def loss_and_grads(params, points, classes):
    """Return the mean cross entropy and its gradients."""
    hidden, probability = predict(params, points)
    inside = np.clip(probability, 1e-12, 1 - 1e-12)
    loss = -np.mean(classes * np.log(inside) + (1 - classes) * np.log(1 - inside))
    error = (probability - classes) / len(classes)
    back = np.outer(error, params["w2"]) * (1 - hidden**2)
    grads = {"w1": points.T @ back, "b1": back.sum(0), "w2": hidden.T @ error, "b2": error.sum(keepdims=True)}
    return float(np.float32(loss)), {name: array.astype(np.float32) for name, array in grads.items()}


def update(params, momentum, grads, lr):
    """Return parameters and momentum after one step."""
    momentum = {name: np.float32(0.9) * momentum[name] + grads[name] for name in params}
    return {name: params[name] - np.float32(lr) * momentum[name] for name in params}, momentum


def accuracy(params, points, classes):
    """Return the share of examples that are classified right."""
    return float(np.mean((predict(params, points)[1] > 0.5) == classes))
