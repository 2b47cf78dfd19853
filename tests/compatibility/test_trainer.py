"""A training library of older experiments (`trainer/`, beside this file) runs its experiment here unchanged."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from rigging.filesystem import TransferBudgetExceeded, filesystem
from rigging.filesystem.budget import current_budget, mirror_budget

HERE = Path(__file__).parent
FRAY_BACKENDS = [
    "local",
    pytest.param("iris", marks=[pytest.mark.process, pytest.mark.timeout(300)]),
    pytest.param("ray", marks=[pytest.mark.process, pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(600)]),
]
LEARNING_RATES = ("0.01", "0.03", "0.1", "0.3", "1.0", "3.0")
FAKE_JAX = """
import json, os, time
from types import SimpleNamespace

def initialize(coordinator_address=None, num_processes=None, process_id=None):
    notes = os.environ["TRAINER_NOTES"]
    with open(os.path.join(notes, f"jax-{process_id}.json"), "w") as file:
        json.dump([coordinator_address, num_processes], file)
    while sum(name.startswith("jax-") for name in os.listdir(notes)) < num_processes:  # as JAX's own does
        time.sleep(0.01)

distributed = SimpleNamespace(initialize=initialize)
"""


class Project:
    """A user's project with the library in it, and storage of its own."""

    def __init__(self, root):
        self.workspace, self.prefix, self.notes = root / "project", root / "prefix", root / "notes"
        shutil.copytree(HERE / "trainer", self.workspace / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
        self.notes.mkdir()

    def run(self, spec, *arguments, code=0, **variables):
        """Run the experiment as a user does; return what it printed."""
        environment = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MARIN", "IRIS_JOB"))
            },
            "FRAY_CLIENT": spec,
            "MARIN_PREFIX": str(self.prefix),
            "TRAINER_NOTES": str(self.notes),
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        }
        command = [sys.executable, "-m", "trainer.experiment", *arguments]
        done = subprocess.run(command, cwd=self.workspace, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def output(self, name):
        """Return the output of a step."""
        (found,) = self.prefix.glob(f"{name}[-_]*")
        return found

    def metrics(self, path):
        """Return the metrics of a run, without those of time."""
        lines = (path / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if not k.startswith("throughput")} for line in lines]

    def checkpoints(self):
        """Return the permanent checkpoints of the run, by name."""
        found = (self.output("checkpoints/moons-mlp") / "checkpoints").glob("step-*/state.npz")
        return {path.parent.name: path.read_bytes() for path in found}


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The run that nothing disturbs, in one process."""
    made = Project(tmp_path_factory.mktemp("uninterrupted"))
    made.log = made.run("local")
    return made


@pytest.fixture
def library(monkeypatch):
    """Give a module of the library, imported here."""
    monkeypatch.syspath_prepend(str(HERE))
    yield lambda name: importlib.import_module(f"trainer.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainer"]:
        del sys.modules[name]


def test_a_run_has_metrics_and_checkpoints(uninterrupted):
    output = uninterrupted.output("checkpoints/moons-mlp")
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert len(losses) == 40
    assert losses[-1] < losses[0] / 2
    assert all(line["throughput/mfu"] > 0 for line in lines[:-1])
    assert lines[-1]["eval/accuracy"] > 0.8
    assert sorted(uninterrupted.checkpoints()) == ["step-10", "step-20", "step-30", "step-40"]
    assert json.loads((output / "config.json").read_text())["resources"]["device"] == {"kind": "cpu", "variant": "cpu"}
    temporary = uninterrupted.prefix / "tmp" / "checkpoints-temp" / "moons-mlp"
    assert list(temporary.iterdir()) == [], "what is permanent has taken the place of what was temporary"
    report = json.loads((uninterrupted.output("reports/moons") / "report" / ".artifact").read_text())
    assert report == {
        "run": "checkpoints/moons-mlp",
        "checkpoint": f"{output.name}-40",
        "accuracy": lines[-1]["eval/accuracy"],
    }
    assert "WANDB_API_KEY is not set" in uninterrupted.log


def test_a_killed_run_goes_on_as_if_nothing_had_happened(fray_harness, project, uninterrupted):
    """It is killed by signal 9 at step 17; the newest checkpoint is then a temporary one."""
    options = ("--run_only", '["checkpoints"]')
    if fray_harness.capabilities.separate_processes:
        project.run(fray_harness.spec, *options, TRAINER_DIES="1", TRAINER_RETRIES="1")
    else:
        project.run(fray_harness.spec, *options, code=-9, TRAINER_DIES="1")
        project.run(fray_harness.spec, *options, TRAINER_DIES="1")
    assert (project.notes / "died").exists()
    output, expected = (each.output("checkpoints/moons-mlp") for each in (project, uninterrupted))
    assert json.loads((output / "process-0.json").read_text())["first_step"] == 15
    assert project.checkpoints() == uninterrupted.checkpoints()
    assert project.metrics(output) == uninterrupted.metrics(expected)


def test_a_sweep_is_shared_out_and_a_failure_leaves_it_to_peers(fray_harness, project):
    project.run(fray_harness.spec, "--run_only", '["sweeps"]')
    noted = (project.notes / "targets").read_text().splitlines()
    assert sorted(line for line in noted if line.endswith("runs")) == [f"lr={lr} runs" for lr in LEARNING_RATES]
    assert [line for line in noted if line.endswith("fails")] == ["lr=0.1 fails"]
    found = json.loads((project.output("sweeps/moons-lr") / ".artifact").read_text())
    assert sorted(found["workers"]) == ["failed", "succeeded", "succeeded"]
    assert sorted(found["losses"]) == [f"lr={lr}" for lr in LEARNING_RATES]
    for lr in LEARNING_RATES:
        status = project.output("sweeps/moons-lr") / "claims" / f"lr={lr}" / ".executor_status"
        assert status.read_text() == "SUCCESS"


def test_the_processes_of_a_run_are_one_jax_program(fray_harness, project, uninterrupted):
    count = 2 if fray_harness.name == "iris" else 1  # what tells the tasks of a job of each other is Iris's
    (project.workspace / "jax.py").write_text(FAKE_JAX)
    project.run(fray_harness.spec, "--run_only", '["checkpoints"]', TRAINER_PROCESSES=str(count))
    told = [json.loads(path.read_text()) for path in project.notes.glob("jax-*.json")]
    assert len(told) == (count if count > 1 else 0)
    assert all(each == told[0] and each[1] == count for each in told)
    output = project.output("checkpoints/moons-mlp")
    processes = [json.loads((output / f"process-{index}.json").read_text()) for index in range(count)]
    assert [(each["index"], each["count"]) for each in processes] == [(index, count) for index in range(count)]
    assert fray_harness.name != "iris" or {each["platforms"] for each in processes} == {"cpu"}
    assert project.checkpoints() == uninterrupted.checkpoints(), "only one of them writes"


def test_checkpoints_in_another_region_are_charged(library, gcs_server, in_us_central2, tmp_path):
    checkpoint = library("checkpoint")
    state = checkpoint.State(3, params={"w": library("model").np.zeros(1000)}, momentum={})
    far, near = f"gs://old-eu-west4/{tmp_path.name}", f"gs://old-us-central2/{tmp_path.name}"
    with mirror_budget(budget_gb=12_000 / 2**30):
        checkpoint.save(near, state)
        checkpoint.save(str(tmp_path), state)
        assert current_budget().bytes_used == 0
        checkpoint.save(far, state)
        size = filesystem("gs").size(f"{far}/step-3/state.npz")
        assert current_budget().bytes_used == size > 8000
        with pytest.raises(TransferBudgetExceeded):
            checkpoint.save(f"{far}/again", state)
    assert [checkpoint.step_of(path) for path in checkpoint.checkpoints(far)] == [3]
    assert checkpoint.checkpoints(f"{far}/again") == []
    assert (checkpoint.load(f"{near}/step-3").params["w"] == 0).all()


def test_data_of_another_region_is_refused(library, gcs_server, in_us_central2, tmp_path):
    train = library("train")
    config = train.TrainConfig("gs://old-eu-west4/data", str(tmp_path / "out"), "far")
    with pytest.raises(ValueError, match="data_path"):
        train.train(config)


def test_the_share_of_the_peak_rate(library):
    from fray.cluster import ResourceConfig
    from fray.device_flops import device_flops_for_jax_device

    train = library("train")
    pod = ResourceConfig.with_tpu("v5p-16")
    assert train.peak_flops(pod) == 8 * device_flops_for_jax_device("TPU v5p", "bf16")
    assert train.peak_flops(ResourceConfig.with_gpu("H100", count=8)) == 8 * 989e12
    assert train.peak_flops(ResourceConfig.with_cpu()) == 1e11


def test_a_run_is_tracked_where_there_is_a_key(library, monkeypatch, tmp_path):
    sent = []

    class Run:
        def log(self, metrics, step):
            sent.append((step, metrics))

        def finish(self):
            sent.append("finished")

    module = types.ModuleType("wandb")
    module.init = lambda **options: sent.append((options["name"], options["tags"])) or Run()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setenv("WANDB_API_KEY", "key")
    tracker = library("tracker").Tracker(str(tmp_path), "moons", {"lr": 0.1}, tags=("small",))
    tracker.log({"train/loss": 0.5}, step=1)
    tracker.finish()
    assert sent == [("moons", ["small"]), (1, {"train/loss": 0.5}), "finished"]
