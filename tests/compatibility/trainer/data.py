"""Two half moons, and batches of them that depend on nothing but the seed and the step."""

import dataclasses
import io
import logging
import os

import numpy as np

from marin.execution import THIS_OUTPUT_PATH
from marin.utils import fsspec_glob, fsspec_mkdirs
from rigging.filesystem import open_url

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class MoonsConfig:
    """What `make_moons` writes."""

    examples: int
    shards: int = 2
    seed: int = 0
    output_path: str = THIS_OUTPUT_PATH


def make_moons(config: MoonsConfig):
    """Write the examples as shards."""
    fsspec_mkdirs(config.output_path)
    rng = np.random.default_rng(config.seed)
    for shard in range(config.shards):
        count = config.examples // config.shards
        angle = rng.uniform(0, np.pi, count)
        classes = rng.integers(0, 2, count)
        points = np.stack([np.cos(angle) + classes, np.sin(angle) * (1 - 2 * classes) + 0.3 * classes], 1)
        buffer = io.BytesIO()
        np.savez(buffer, points=points + rng.normal(0, 0.1, points.shape), classes=classes)
        with open_url(os.path.join(config.output_path, f"shard-{shard:05d}.npz"), "wb") as file:
            file.write(buffer.getvalue())


def load(path):
    """Read all examples below a path."""
    shards = sorted(fsspec_glob(os.path.join(path, "shard-*.npz")))
    if not shards:
        raise FileNotFoundError(f"{path}: there are no shards")
    points, classes = [], []
    for shard in shards:
        with open_url(shard, "rb") as file:
            found = np.load(io.BytesIO(file.read()))
        points.append(found["points"])
        classes.append(found["classes"])
    return np.concatenate(points), np.concatenate(classes)


def batch(points, classes, size, seed, step):
    """Return the batch of a step."""
    chosen = np.random.default_rng([seed, step]).integers(0, len(points), size)
    return points[chosen], classes[chosen]
