"""Runs on Weights & Biases. `wandb` is imported when a run starts."""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

logger = logging.getLogger(__name__)

WANDB_ENTITY = os.environ.get("WANDB_ENTITY", "marin-community")
WANDB_PROJECT = os.environ.get("WANDB_PROJECT", "marin")
WANDB_PATH = f"{WANDB_ENTITY}/{WANDB_PROJECT}"


def init_wandb(
    *,
    run_name: str | None = None,
    tags: Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    entity: str = WANDB_ENTITY,
    project: str = WANDB_PROJECT,
) -> Any:
    """Start a run and return it; None, with a log line, if WANDB_API_KEY is not set.

    In a step its config has the output path as `marin_output`, and the step's page links the run.

    Args:
        run_name: Its name. Defaults to WANDB_RUN_NAME, or else the time.
        tags: Its tags.
        config: Its config.
        entity: Its owner.
        project: Its project.
    """
    if not os.environ.get("WANDB_API_KEY"):
        logger.info("WANDB_API_KEY is not set: this run is not sent to Weights & Biases")
        return None
    import wandb

    from marin.execution.log.metric_log import link, output_of_step

    output = output_of_step()
    if output is not None:
        config = {"marin_output": output, **(config or {})}
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = run_name or os.environ.get("WANDB_RUN_NAME") or f"run-{now}"
    run = wandb.init(entity=entity, project=project, name=name, tags=tags, config=config)
    if url := getattr(run, "url", None):  # an offline run has none
        link("wandb", url)
    return run
