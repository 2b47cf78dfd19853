"""Metrics: a line of JSON each beside the run's output, and Weights & Biases where there is a key."""

import json
import os

from marin.utilities.json_encoder import CustomJsonEncoder
from marin.utilities.wandb_utils import init_wandb
from marin.utils import fsspec_exists, fsspec_mkdirs
from rigging.filesystem import open_url


class Tracker:
    """Logs the metrics of one run; a run that goes on from a checkpoint forgets what it had logged after it.

    Args:
        output_path: The run's.
        run_id: Its name.
        config: Shown with it.
        tags: Shown with it.
    """

    def __init__(self, output_path, run_id, config, tags=()):
        self.path = os.path.join(output_path, "metrics.jsonl")
        self.lines = []
        self.wandb = init_wandb(run_name=run_id, tags=list(tags), config=config)
        fsspec_mkdirs(output_path)
        with open_url(os.path.join(output_path, "config.json"), "w") as file:
            json.dump(config, file, cls=CustomJsonEncoder)

    def resume(self, step):
        """Go on after a step."""
        self.lines = [line for line in read(self.path) if line["step"] <= step] if fsspec_exists(self.path) else []

    def log(self, metrics, step):
        """Log the metrics of a step."""
        self.lines.append({"step": step, **metrics})
        if self.wandb is not None:
            self.wandb.log(metrics, step=step)

    def flush(self):
        """Write what was logged."""
        with open_url(self.path, "w") as file:
            file.writelines(json.dumps(line, cls=CustomJsonEncoder) + "\n" for line in self.lines)

    def finish(self):
        """Write what was logged, and end the run."""
        self.flush()
        if self.wandb is not None:
            self.wandb.finish()


def read(path):
    """Return the metrics of a run, by step."""
    with open_url(path, "r") as file:
        return [json.loads(line) for line in file]
