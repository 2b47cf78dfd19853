"""Checkpoints: permanent ones every so many steps beside the run's output, the others in temporary storage.

A checkpoint is whole when its metadata.json is there, which is written last.
"""

import dataclasses
import io
import json
import logging
import os
import re

import numpy as np

from marin.utils import fsspec_exists, fsspec_glob, fsspec_mkdirs
from rigging.filesystem import marin_temp_bucket, open_url, record_transfer, url_to_fs
from rigging.timing import Timer, Timestamp

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class CheckpointerConfig:
    """When checkpoints are kept."""

    permanent_every: int = 10
    temporary_every: int = 3
    temporary_days: int = 14


@dataclasses.dataclass(frozen=True)
class State:
    """All that a run needs to go on."""

    step: int
    params: dict
    momentum: dict


class Checkpointer:
    """Saves and finds the checkpoints of one run.

    Args:
        config: When checkpoints are kept.
        output_path: The run's.
        run_id: Names its temporary checkpoints.
    """

    def __init__(self, config: CheckpointerConfig, output_path: str, run_id: str):
        self.config = config
        self.permanent = os.path.join(output_path, "checkpoints")
        self.temporary = marin_temp_bucket(config.temporary_days, f"checkpoints-temp/{run_id}")

    def on_step(self, state: State, last: bool = False):
        """Save what is due after a step."""
        if last or state.step % self.config.permanent_every == 0:
            save(self.permanent, state)
            self._drop_temporary(except_step=None)
        elif state.step % self.config.temporary_every == 0:
            save(self.temporary, state)
            self._drop_temporary(except_step=state.step)

    def latest(self):
        """Return the newest whole checkpoint's path; None when there is none."""
        found = [(step_of(path), path) for base in (self.permanent, self.temporary) for path in checkpoints(base)]
        return max(found)[1] if found else None

    def _drop_temporary(self, except_step):
        for path in checkpoints(self.temporary):
            if step_of(path) != except_step:
                fs, inner = url_to_fs(path)
                fs.rm(inner, recursive=True)


def checkpoints(base):
    """Return the paths of whole checkpoints below `base`."""
    if not fsspec_exists(base):
        return []
    return [os.path.dirname(path) for path in fsspec_glob(os.path.join(base, "step-*", "metadata.json"))]


def step_of(path):
    """Return the step of a checkpoint's path."""
    return int(re.search(r"step-(\d+)/?$", path).group(1))


def save(base, state: State):
    """Write a checkpoint; what crosses regions is charged before it moves."""
    path = os.path.join(base, f"step-{state.step}")
    buffer = io.BytesIO()
    arrays = {f"{kind}.{name}": a for kind in ("params", "momentum") for name, a in getattr(state, kind).items()}
    np.savez(buffer, **arrays)
    record_transfer(len(buffer.getvalue()), path)
    timer = Timer()
    fsspec_mkdirs(path)
    with open_url(os.path.join(path, "state.npz"), "wb") as file:
        file.write(buffer.getvalue())
    with open_url(os.path.join(path, "metadata.json"), "w") as file:
        json.dump({"step": state.step, "timestamp": Timestamp.now().as_formatted_date()}, file)
    logger.info("saved %s in %.3f s", path, timer.elapsed_seconds())


def load(path) -> State:
    """Read a checkpoint."""
    with open_url(os.path.join(path, "state.npz"), "rb") as file:
        arrays = np.load(io.BytesIO(file.read()))
    parts = {"params": {}, "momentum": {}}
    for key in arrays.files:
        kind, name = key.split(".", 1)
        parts[kind][name] = arrays[key]
    return State(step_of(path), **parts)
