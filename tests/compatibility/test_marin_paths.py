"""A script that uses the calls listed here has the same paths in every process."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import json
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from fray.cluster import ResourceConfig
from marin.execution import (
    THIS_OUTPUT_PATH, Executor, ExecutorStep, InputName, compute_output_path, ensure_versioned, mirrored,
    output_path_of, this_output_path, versioned,
)
from marin.execution.artifact import PathMetadata
from marin.execution.executor import resolve_executor_step
from marin.execution.remote import remote, sanitize_job_name
from marin.execution.step_spec import StepSpec
from marin.execution.sweep import SweepTarget
from marin.utilities.executor_utils import ckpt_path_to_step_name
from marin.utils import get_directory_friendly_name

@dataclass(frozen=True)
class Config:
    data: object
    output_path: str = THIS_OUTPUT_PATH
    lr: float = versioned(3e-4)
    tags: object = field(default_factory=lambda: versioned(["b", "a"]))
    every: object = versioned(timedelta(minutes=10))
    resources: object = versioned(ResourceConfig.with_tpu("v5p-8", slice_count=2))

def fn(config):
    pass

old = ExecutorStep("tokenized/dolma", fn, Config("x"), override_output_path="tokenized/dolma-349fb7/")
raw = StepSpec(name="raw/web", hash_attrs={"repo": get_directory_friendly_name("org/web.v1"), "n": 3})
tokens = ExecutorStep("tokenized/web", remote(fn), Config(raw.as_executor_step() / "text", tags=versioned(["b", "a"])))
train = ExecutorStep(
    name="checkpoints/llama-" + ckpt_path_to_step_name("meta-llama/Llama-3.1-8B"),
    fn=remote(fn, resources=ResourceConfig.with_tpu("v5p-8")),
    config={
        "tokens": [tokens, output_path_of(old, "train")],
        "eval": mirrored(versioned(Path("eval/mmlu"))),
        "from": InputName.hardcoded("gs://marin-us-central2/checkpoints/base"),
        "out": this_output_path("hf"),
        "lr": ensure_versioned(0.1),
        "targets": versioned([SweepTarget(f"lr={lr}", lr) for lr in (1, 2)]),
        "meta": versioned(PathMetadata("/a")),
    },
)
report = ExecutorStep("report", fn, {"train": output_path_of(train, "checkpoints").nonblocking(), "n": versioned(1)})
executor = Executor("/prefix", "/prefix/experiments")
for step in (report, train):
    executor.compute_version(step, is_pseudo_dep=False)
paths = [executor.output_paths[step] for step in executor.steps]
paths.append(compute_output_path("alone", {"a": versioned({"k": (1, 2)}), "b": tokens}, prefix="/prefix"))
paths.append(resolve_executor_step(train, executor.configs[train], executor.output_paths[train]).output_path)
paths.append(sanitize_job_name(train.name))
json.dump(paths, sys.stdout)
"""

CACHE = """
import sys
from marin.execution.disk_cache import disk_cache, locked_disk_cache
from marin.execution.plan.call_identity import call_digest

class Tokenizer:
    def __init__(self):
        self.words = {"b", "a", "c"}

def load(tokenizer, **options):
    return sorted(options)

for cached in (disk_cache(load), locked_disk_cache(load), disk_cache(lambda names, **k: names)):
    cached({"b", "a"}, other={"y": {2, 1}, "x": None}, path="a")
"""


def run(program, seed, tmp_path):
    environment = {**os.environ, "PYTHONHASHSEED": seed, "MARIN_PREFIX": str(tmp_path)}
    script = tmp_path / "script.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.compatible("every call of a script: the same paths in each process", since="0.1.0")
def test_paths_do_not_depend_on_the_hash_seed(tmp_path):
    first, second = (run(SCRIPT, seed, tmp_path) for seed in "12")
    assert first == second
    assert first.count("/prefix/") >= 6
    assert "/prefix/tokenized/dolma-349fb7/" in first


@pytest.mark.compatible("disk_cache: the same place in each process", since="0.1.0")
def test_cached_results_are_found_under_another_hash_seed(tmp_path):
    run(CACHE, "1", tmp_path)
    kept = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("data.pkl"))
    assert len(kept) == 3
    run(CACHE, "2", tmp_path)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("data.pkl")) == kept
