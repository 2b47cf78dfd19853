"""An experiment of this library: data, a run, a sweep and a report. `python -m trainer.experiment`"""

import dataclasses
import os
import signal

from fray.cluster import ResourceConfig
from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path, versioned
from marin.execution.artifact import Artifact
from marin.execution.step_spec import StepSpec
from marin.utilities.executor_utils import ckpt_path_to_step_name
from trainer import checkpoint, data, model
from trainer.launch import PodConfig, SweepConfig, run_on_pod, run_sweep
from trainer.train import TrainConfig

SMALL = ResourceConfig.with_cpu(cpu=0.2, ram="512m", disk="64m")
NOTES = os.environ.get("TRAINER_NOTES", "")


@dataclasses.dataclass(frozen=True)
class DieOnce:
    """Kills the process after a step, the first time."""

    step: int
    marker: str

    def __call__(self, step):
        if step == self.step and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


@dataclasses.dataclass(frozen=True)
class FailOnce:
    """Notes each target that begins, and fails at one of them the first time."""

    target: str
    notes: str

    def __call__(self, target_id):
        marker = os.path.join(self.notes, "failed-once")
        fails = target_id == self.target and not os.path.exists(marker)
        with open(os.path.join(self.notes, "targets"), "a") as file:
            file.write(f"{target_id} {'fails' if fails else 'runs'}\n")
        if fails:
            open(marker, "w").close()
            raise FloatingPointError(f"{target_id}: loss is nan")


def report(output_path, step_name, checkpoints, data_path):
    """Measure the newest checkpoint of a run."""
    newest = max(checkpoint.checkpoints(checkpoints), key=checkpoint.step_of)
    accuracy = model.accuracy(checkpoint.load(newest).params, *data.load(data_path))
    return {"run": step_name, "checkpoint": ckpt_path_to_step_name(newest), "accuracy": accuracy}


moons = StepSpec(
    name="tokenized/moons",
    hash_attrs={"examples": 256, "seed": 0},
    fn=lambda output_path: data.make_moons(data.MoonsConfig(examples=256, output_path=output_path)),
)
moons_step = moons.as_executor_step()

base_run = TrainConfig(data_path=output_path_of(moons_step), output_path=this_output_path(), run_id="moons-mlp")
crash = DieOnce(17, os.path.join(NOTES, "died")) if os.environ.get("TRAINER_DIES") else None

train_step = ExecutorStep(
    name="checkpoints/moons-mlp",
    fn=run_on_pod,
    config=PodConfig(
        train=dataclasses.replace(base_run, steps=versioned(40), lr=versioned(0.1), on_step=crash),
        resources=dataclasses.replace(SMALL, replicas=int(os.environ.get("TRAINER_PROCESSES", "1"))),
        env_vars={"TRAINER_NOTES": NOTES},
        retries=int(os.environ.get("TRAINER_RETRIES", "0")),
    ),
)

sweep_step = ExecutorStep(
    name="sweeps/moons-lr",
    fn=run_sweep,
    config=SweepConfig(
        base=dataclasses.replace(base_run, run_id="moons-sweep", steps=versioned(12)),
        learning_rates=versioned((0.01, 0.03, 0.1, 0.3, 1.0, 3.0)),
        output_path=this_output_path(),
        workers=3,
        resources=SMALL,
        before_run=FailOnce("lr=0.1", NOTES),
    ),
)


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """What the report is about."""

    checkpoints: str
    data_path: str
    output_path: str


report_step = ExecutorStep(
    name="reports/moons",
    fn=lambda config: Artifact.save(
        artifact=report(config.output_path, train_step.name, config.checkpoints, config.data_path),
        base_path=os.path.join(config.output_path, "report"),
    ),
    config=ReportConfig(train_step / "checkpoints", output_path_of(moons_step), this_output_path()),
)

if __name__ == "__main__":
    executor_main(steps=[report_step, sweep_step], description="Two half moons")
