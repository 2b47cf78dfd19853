"""The names that experiments import. They can also be imported from `marin.execution`.

data = ExecutorStep(name="data", fn=generate, config=DataConfig(n=versioned(100), output_path=this_output_path()))
stats = ExecutorStep(name="stats", fn=summarise, config=StatsConfig(output_path_of(data), this_output_path()))

if __name__ == "__main__":
    executor_main(steps=[stats], description="A small experiment")
"""

from marin.execution.config.instantiate import instantiate_config, resolve_local_placeholders
from marin.execution.config.step import ExecutorStep, InputName, get_executor_step, output_path_of
from marin.execution.config.values import (
    THIS_OUTPUT_PATH,
    MirroredValue,
    OutputName,
    VersionedValue,
    ensure_versioned,
    mirrored,
    this_output_path,
    unwrap_versioned_value,
    versioned,
)
from marin.execution.config.walk import (
    InputNameEvent,
    VersionedEvent,
    collect_dependencies_and_version,
    upstream_steps,
    walk_config,
)
from marin.execution.jobs.placement import infer_tpu_variant_regions_from_iris
from marin.execution.lease.step_lease import step_lease
from marin.execution.record.info import ExecutorInfo, ExecutorStepInfo
from marin.execution.report.progress import progress
from marin.execution.run.materialize import materialize
from marin.execution.run.pipeline import Executor
from marin.execution.script.main import ExecutorMainConfig, executor_main
from marin.execution.step_spec import resolve_executor_step
from marin.execution.version.paths import compute_output_path

__all__ = [
    "THIS_OUTPUT_PATH",
    "Executor",
    "ExecutorInfo",
    "ExecutorMainConfig",
    "ExecutorStep",
    "ExecutorStepInfo",
    "InputName",
    "InputNameEvent",
    "MirroredValue",
    "OutputName",
    "VersionedEvent",
    "VersionedValue",
    "collect_dependencies_and_version",
    "compute_output_path",
    "ensure_versioned",
    "executor_main",
    "get_executor_step",
    "infer_tpu_variant_regions_from_iris",
    "instantiate_config",
    "materialize",
    "mirrored",
    "output_path_of",
    "progress",
    "resolve_executor_step",
    "resolve_local_placeholders",
    "step_lease",
    "this_output_path",
    "unwrap_versioned_value",
    "upstream_steps",
    "versioned",
    "walk_config",
]
