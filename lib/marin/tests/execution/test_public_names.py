"""Every name that experiments import is where they import it from, with the parameters that they use."""

import importlib
import inspect
from typing import Any

import pytest

BOTH = (
    "executor_main ExecutorMainConfig Executor ExecutorStep InputName OutputName THIS_OUTPUT_PATH this_output_path "
    "output_path_of get_executor_step VersionedValue versioned ensure_versioned unwrap_versioned_value MirroredValue "
    "mirrored walk_config InputNameEvent VersionedEvent upstream_steps collect_dependencies_and_version "
    "instantiate_config resolve_local_placeholders compute_output_path materialize resolve_executor_step "
    "ExecutorStepInfo ExecutorInfo step_lease"
)
NAMES = {
    "marin.execution": BOTH,
    "marin.execution.executor": BOTH,
    "marin.execution.remote": "remote RemoteCallable",
    "marin.execution.step_spec": "StepSpec",
    "marin.execution.step_runner": "StepRunner run_step check_cache",
    "marin.execution.executor_step_status": (
        "STATUS_SUCCESS STATUS_FAILED STATUS_RUNNING STATUS_DEP_FAILED StatusFile step_lock distributed_lock "
        "StepAlreadyDone PreviousTaskFailedError worker_id"
    ),
    "marin.execution.artifact": "Artifact PathMetadata PathsMetadata",
    "marin.execution.disk_cache": "disk_cache",
    "marin.execution.sweep": "SweepTarget claim_and_run",
    "marin.utils": (
        "remove_tpu_lockfile_on_exit gcs_file_exists fsspec_exists fsspec_glob fsspec_mkdirs fsspec_isdir fsspec_size "
        "fsspec_mtime rebase_file_path"
    ),
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in NAMES.items() for name in names.split()]
)
def test_it_is_there_and_says_what_it_is(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, str) or found.__doc__, f"{module}.{name} has no docstring"


REQUIRED = inspect.Parameter.empty


def member(path: str) -> Any:
    module, _, names = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("marin.execution:executor_main", "config steps description max_concurrent"),
        ("marin.execution:Executor", "prefix executor_info_base_path description"),
        ("marin.execution:Executor.run", "self steps dry_run run_only force_run_failed max_concurrent"),
        ("marin.execution:Executor.compute_version", "self step is_pseudo_dep"),
        (
            "marin.execution:ExecutorStep",
            "name fn config description override_output_path resources pip_dependency_groups",
        ),
        ("marin.execution:InputName", "step name block_on_step"),
        ("marin.execution:MirroredValue", "value budget_gb"),
        ("marin.execution:mirrored", "value budget_gb"),
        ("marin.execution:instantiate_config", "config output_path output_paths prefix"),
        ("marin.execution:resolve_local_placeholders", "config output_path"),
        ("marin.execution:compute_output_path", "name config override_output_path prefix"),
        ("marin.execution:materialize", "config prefix output_path"),
        ("marin.execution.remote:remote", "fn name resources env_vars pip_dependency_groups"),
        ("marin.execution.remote:RemoteCallable", "fn resources env_vars pip_dependency_groups name"),
        (
            "marin.execution.step_spec:StepSpec",
            "name output_path_prefix deps hash_attrs override_output_path fn resources",
        ),
        ("marin.execution.step_runner:StepRunner.run", "self steps dry_run force_run_failed max_concurrent"),
        ("marin.execution.step_runner:run_step", "step force_run_failed"),
        ("marin.execution.step_runner:StepRunner.run_step", "self step force_run_failed"),
        ("marin.execution.step_runner:check_cache", "step"),
        ("marin.execution.executor_step_status:StatusFile", "output_path worker_id"),
        ("marin.execution.artifact:Artifact.save", "value path"),
        ("marin.execution.artifact:Artifact.load", "path type"),
        ("marin.execution.artifact:PathMetadata", "path"),
        ("marin.execution.artifact:PathsMetadata", "parent_path paths"),
        ("marin.execution.disk_cache:disk_cache", "fn output_path save_fn load_fn"),
        ("marin.execution.sweep:SweepTarget", "target_id config"),
        ("marin.execution.sweep:claim_and_run", "sweep_root targets run_fn"),
    ],
)
def test_its_parameters(path: str, parameters: str) -> None:
    assert list(inspect.signature(member(path)).parameters)[: len(parameters.split())] == parameters.split()
    more = list(inspect.signature(member(path)).parameters.values())[len(parameters.split()) :]
    assert all(parameter.default is not REQUIRED for parameter in more), "what was added must have a default"


def test_options_and_attributes() -> None:
    from marin.execution import Executor, ExecutorMainConfig

    assert ExecutorMainConfig(None, None, False, True, None, None) == ExecutorMainConfig()
    found = ExecutorMainConfig("/p", "/i", True, False, ["^a$"], 3)
    assert (found.prefix, found.executor_info_base_path, found.run_only, found.max_concurrent) == (
        "/p", "/i", ["^a$"], 3,
    )  # fmt: skip
    executor = Executor("/p", "/p/experiments")
    names = """
        configs dependencies versions is_pseudo_dep version_strs version_str_to_step hashed_versions output_paths steps
        step_infos executor_info canonicalize get_infos write_infos get_experiment_url
    """
    for name in names.split():
        assert hasattr(executor, name)
