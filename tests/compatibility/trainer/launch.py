"""Runs and sweeps as jobs of a cluster."""

import dataclasses
import logging
import os

from fray import create_environment, current_client, wait_all
from fray.cluster import Entrypoint, JobRequest, ResourceConfig
from marin.execution.remote import sanitize_job_name
from marin.execution.sweep import SweepTarget, claim_and_run
from rigging.filesystem import marin_prefix
from trainer import tracker
from trainer.train import TrainConfig, train

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class PodConfig:
    """A run, and the machines that it takes."""

    train: TrainConfig
    resources: ResourceConfig
    env_vars: dict = dataclasses.field(default_factory=dict)
    retries: int = 0


def environment_for(resources, env_vars):
    """Return what the processes of a run find around them."""
    variables = {"MARIN_PREFIX": marin_prefix(), **resources.device.default_env_vars(), **env_vars}
    return create_environment(env_vars=variables)


def run_on_pod(config: PodConfig):
    """Train as a job, and wait for it."""
    job = current_client().submit(
        JobRequest(
            name=sanitize_job_name(f"train-{config.train.run_id}"),
            entrypoint=Entrypoint.from_callable(train, args=[config.train]),
            resources=config.resources,
            environment=environment_for(config.resources, config.env_vars),
            max_retries_failure=config.retries,
        )
    )
    job.wait(raise_on_failure=True)


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """Runs that several workers share out among themselves."""

    base: TrainConfig
    learning_rates: tuple
    output_path: str
    workers: int
    resources: ResourceConfig
    before_run: object = None


def targets_of(config: SweepConfig):
    """Return the sweep's targets."""
    targets = []
    for lr in config.learning_rates:
        name = f"lr={lr}"
        run = dataclasses.replace(
            config.base, lr=lr, run_id=f"{config.base.run_id}-{name}", output_path=f"{config.output_path}/runs/{name}"
        )
        targets.append(SweepTarget(target_id=name, config=run))
    return targets


def sweep_worker(config: SweepConfig):
    """Train what no other worker trains, until all is done."""

    def run(target):
        if config.before_run is not None:
            config.before_run(target.target_id)
        train(target.config)

    claim_and_run(os.path.join(config.output_path, "claims"), targets_of(config), run)


def run_sweep(config: SweepConfig):
    """Train all targets by several workers; return the last loss of each."""
    client = current_client()
    jobs = [
        client.submit(
            JobRequest(
                name=sanitize_job_name(f"sweep-{config.base.run_id}-{worker}"),
                entrypoint=Entrypoint.from_callable(sweep_worker, args=[config]),
                resources=config.resources,
                environment=environment_for(config.resources, {}),
            )
        )
        for worker in range(config.workers)
    ]
    statuses = wait_all(jobs, raise_on_failure=False)
    logger.info("workers of the sweep: %s", ", ".join(statuses))
    losses = {}
    for target in targets_of(config):
        lines = tracker.read(os.path.join(target.config.output_path, "metrics.jsonl"))
        losses[target.target_id] = [line["train/loss"] for line in lines if "train/loss" in line][-1]
    return {"workers": [str(status) for status in statuses], "losses": losses}
