"""One training run: the loop, its processes, and the share of the peak rate that it reaches."""

import dataclasses
import json
import logging
import os
import time
from collections.abc import Callable

import numpy as np

from fray.cluster import ResourceConfig
from iris.cluster.client.job_info import get_job_info
from iris.runtime.jax_init import initialize_jax
from marin.utilities.dataclass_utils import asdict_without_nones
from marin.utils import fsspec_mkdirs
from rigging.filesystem import check_gcs_paths_same_region, open_url
from rigging.log_setup import configure_logging
from trainer import checkpoint, data, model
from trainer.checkpoint import Checkpointer, CheckpointerConfig, State
from trainer.model import ModelConfig
from trainer.tracker import Tracker

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """One run."""

    data_path: str
    output_path: str
    run_id: str
    steps: int = 40
    batch_size: int = 32
    lr: float = 0.1
    seed: int = 0
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    checkpointer: CheckpointerConfig = dataclasses.field(default_factory=CheckpointerConfig)
    resources: ResourceConfig = dataclasses.field(default_factory=ResourceConfig.with_cpu)
    initialize_from: str | None = None
    tags: tuple = ()
    on_step: Callable | None = None


def process():
    """Return this process's index and how many there are."""
    info = get_job_info()
    return (0, 1) if info is None else (info.task_index, info.num_tasks)


def peak_flops(resources):
    """Return the peak rate of all the run's devices."""
    try:
        return resources.device_flops("bf16") * resources.chip_count()
    except NotImplementedError:
        return resources.total_flops()


def train(config: TrainConfig):
    """Train to the end, from the newest checkpoint if there is one; return the last loss."""
    configure_logging(logging.INFO)
    initialize_jax()
    index, count = process()
    check_gcs_paths_same_region(config, local_ok=True)
    points, classes = data.load(config.data_path)
    checkpointer = Checkpointer(config.checkpointer, config.output_path, config.run_id)
    tracker = Tracker(config.output_path, config.run_id, _shown(config), config.tags) if index == 0 else None
    state = _start(config, checkpointer, tracker)
    _note_process(config, index, count, state.step)
    peak = peak_flops(config.resources)
    loss = float("nan")
    while state.step < config.steps:
        begun = time.perf_counter()
        batch = data.batch(points, classes, config.batch_size, config.seed, state.step)
        loss, grads = model.loss_and_grads(state.params, *batch)
        if not np.isfinite(loss):
            raise FloatingPointError(f"loss is {loss} at step {state.step}")
        state = State(state.step + 1, *model.update(state.params, state.momentum, grads, config.lr))
        seconds = time.perf_counter() - begun
        if tracker is not None:
            rate = config.model.flops_per_example * config.batch_size / seconds
            tracker.log({"train/loss": loss, "throughput/mfu": rate / peak}, state.step)
            checkpointer.on_step(state, last=state.step == config.steps)
            tracker.flush()
        if config.on_step is not None:
            config.on_step(state.step)
    if tracker is not None:
        tracker.log({"eval/accuracy": model.accuracy(state.params, points, classes)}, state.step)
        tracker.finish()
    return loss


def _start(config, checkpointer, tracker):
    found = checkpointer.latest() or config.initialize_from
    if found is None:
        params = model.init(config.model, config.seed)
        return State(0, params, {name: np.zeros_like(array) for name, array in params.items()})
    state = checkpoint.load(found)
    logger.info("run %s goes on from %s", config.run_id, found)
    if tracker is not None:
        tracker.resume(state.step)
    return state


def _shown(config):
    return asdict_without_nones(dataclasses.replace(config, on_step=None))


def _note_process(config, index, count, first_step):
    fsspec_mkdirs(config.output_path)
    platforms = os.environ.get("JAX_PLATFORMS")
    with open_url(os.path.join(config.output_path, f"process-{index}.json"), "w") as file:
        json.dump({"index": index, "count": count, "first_step": first_step, "platforms": platforms}, file)
