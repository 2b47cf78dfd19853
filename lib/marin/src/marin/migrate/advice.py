"""Replacements for names of the predecessor that do not exist here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: By dotted name; of several that fit, the longest counts.
INSTEAD: Final[Mapping[str, str]] = {
    "fray.job": "take jobs from fray.current_client.current_client(), and their types from fray",
    "fray.v1": "import from fray, which has what fray.v2 had",
    "fray.v2": "import from fray: the names are the same",
    "fray.cluster.current_cluster": "use fray.current_client.current_client()",
    "fray.cluster.ray": "set FRAY_CLIENT=ray, and use fray.current_client.current_client()",
    "iris.logging": "use rigging.log_setup",
    "iris.marin_fs": "use rigging.filesystem",
    "iris.time_utils": "use rigging.timing",
    "iris.time_proto": "use rigging.timing",
    "marin.core.runtime": "use marin.execution.disk_cache for one result, marin.run.map_files for many files",
    "marin.core.conversation": "bring that module along: it is a data format of your own",
    "marin.cluster": "use `iris cluster ...`, or `python -m marin.run.cluster` for Ray",
    "marin.download": "bring that package along; StepSpec or ExecutorStep runs its functions",
    "marin.evaluation": "bring that package along; StepSpec or ExecutorStep runs its functions",
    "marin.export": "bring that package along; for checkpoints use marin.utilities.upload_gcs_to_hf",
    "marin.processing": "bring that package along; StepSpec or ExecutorStep runs its functions",
    "marin.rl": "bring that package along; it finds fray, iris and rigging here",
    "marin.scaling_laws": "bring that package along",
    "marin.speedrun": "bring that package along",
    "marin.tokenize": "bring that package along; StepSpec or ExecutorStep runs its functions",
    "marin.training": "bring that package along; it finds fray, iris and rigging here",
    "marin.transform": "bring that package along; StepSpec or ExecutorStep runs its functions",
    "marin.validation": "bring that package along, or use marin.utilities.validation_utils",
    "marin.execution.artifact_registry": "give steps with Artifact.load(step)",
    "marin.execution.context": "use ExecutorStep and executor_main",
    "marin.execution.dag": "use ExecutorStep, or StepSpec with deps",
    "marin.execution.distributed_lock": "use rigging.distributed_lock",
    "marin.execution.fray_exec": "use marin.execution.remote.remote",
    "marin.execution.lazy": "use ExecutorStep, or StepSpec with deps",
    "marin.execution.ray_utils": "use fray.current_client.current_client()",
    "marin.execution.status_actor": "the status is a file: use marin.execution.executor_step_status",
    "marin.execution.step_model": "use marin.execution.step_spec.StepSpec",
    "marin.execution.step_status": "use marin.execution.executor_step_status",
    "marin.execution.types": "import from marin.execution",
    "marin.resources": "use fray.ResourceConfig: with_cpu, with_gpu and with_tpu",
    "marin.utilities.fn_utils": "use functools.partial",
    "marin.utilities.gcs_utils": "use rigging.filesystem: split_gcs_path, get_bucket_location",
    "marin.utilities.time_logger": "use rigging.timing.log_time",
    "marin.utilities.ray_utils": "use fray.current_client.current_client()",
    "marin.utils.fsspec_rm": "use rigging.filesystem.url_to_fs(path), and the filesystem's rm",
    "marin.utils.fsspec_cp": "use rigging.filesystem.url_to_fs(path), and put of the filesystem that it gives",
    "marin.utils.fsspec_cpdir": "use rigging.filesystem.url_to_fs(path), and put of the filesystem that it gives",
    "rigging.filesystem.StoragePath": "paths are plain texts: use rigging.filesystem.url_to_fs and open_url",
    "rigging.filesystem.prefix_join": "use os.path.join",
    "rigging.filesystem.unique_temp_path": "use rigging.filesystem.atomic_write",
}

#: Libraries that the ancestor's checkout had beside it, by the name that they are imported by.
LIBRARIES: Final[Mapping[str, str]] = {
    "haliax": "levanter brings it",
    "levanter": "install your copy of it beside this project: it finds fray, iris and rigging here",
    "zephyr": "install your copy of it beside this project, or use marin.run.map_files",
    "experiments": "bring that directory along, beside this script or above it",
    "dupekit": "install your copy of it beside this project",
    "finelog": "use iris job logs",
    "thalas": "install your copy of it beside this project",
}


def instead_of(name: str) -> str | None:
    """Return the replacement for a dotted name; None if unknown."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        found = INSTEAD.get(".".join(parts[:length]))
        if found is not None:
            return found
    return LIBRARIES.get(parts[0])
