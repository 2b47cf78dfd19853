"""Translate a job's request into the options of `sbatch`."""

import math
import os
import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Final

from fray.backends.slurm.address import SlurmAddress
from fray.backends.slurm.folder import Group, Spec
from fray.backends.slurm.runner import WARNING_SECONDS
from fray.types import GpuConfig, JobRequest, TpuConfig, parse_size
from rigging.errors import InvalidRequest
from rigging.filesystem.budget import budget_environment

_MEGABYTE: Final = 1 << 20


def check_request(request: JobRequest) -> None:
    """Refuse a request that no Slurm cluster can run as it is.

    Raises:
        InvalidRequest: It asks for a TPU, alternatives, an image, or failures that are tolerated.
    """
    what, needs, environment = f"job {request.name!r}", request.resources, request.environment
    if isinstance(needs.device, TpuConfig):
        raise InvalidRequest(f"{what} asks for {needs.device.variant}; Slurm has GPUs and CPUs: use Iris for TPUs")
    if needs.device_alternatives:
        raise InvalidRequest(
            f"{what}: device_alternatives is {list(needs.device_alternatives)}; a Slurm job has one type: leave it out"
        )
    if needs.image or (environment is not None and environment.docker_image):
        raise InvalidRequest(f"{what} asks for an image; on Slurm, jobs run in the submitter's Python: leave it out")
    if request.max_task_failures:
        raise InvalidRequest(
            f"{what}: max_task_failures is {request.max_task_failures}, but here all replicas of a job fail with the "
            "first one; leave it at 0, or submit to Iris"
        )


def spec_of(request: JobRequest, names: list[str], address: SlurmAddress, packages: str | None) -> Spec:
    """Return the spec of a group.

    Args:
        request: One of the requests, which differ only in names and callables.
        names: Their full names.
        address: The cluster.
        packages: The folder with the packages of their environment; None for none.
    """
    environment, program = request.environment, request.entrypoint.binary_entrypoint
    return Spec(
        names=names,
        client=address.spec,
        replicas=request.replica_count,
        max_retries_failure=request.max_retries_failure,
        max_retries_preemption=request.max_retries_preemption,
        argv=None if program is None else [program.command, *program.args],
        cwd=os.path.abspath((environment.workspace if environment else None) or os.getcwd()),
        env={**budget_environment(), **(environment.env_vars if environment else {})},
        packages=packages,
    )


def gpu_type(variant: str, known: Collection[str], what: str) -> str:
    """Return the cluster's own name of a type of GPU, like "nvidia_h100_80gb" for "H100"; "" if its GPUs have no types.

    Args:
        variant: The type in the request.
        known: The cluster's types; "" for GPUs without a type.
        what: The job, for errors.

    Raises:
        InvalidRequest: The cluster has no such type, or several. The message lists its types.
    """
    if variant in known:
        return variant
    word = variant.lower()
    found = [each for each in known if each.lower() == word]
    found = found or [each for each in known if word in re.split(r"[^a-z0-9]", each.lower())]
    if len(found) == 1:
        return found[0]
    if not found and "" in known:
        return ""
    listed = ", ".join(sorted(each or "(without a type)" for each in found or known)) or "none"
    raise InvalidRequest(
        f"{what} asks for {variant} GPUs; {'several types match' if found else 'this partition has'}: {listed}"
    )


def options_of(
    request: JobRequest, name: str, address: SlurmAddress, group: Group | None, count: int = 1, gpu: str = ""
) -> list[str]:
    """Return the options of `sbatch` for a group.

    Args:
        request: One of the group's requests.
        name: The name of the Slurm job.
        address: The cluster.
        group: The group; None if nothing is submitted.
        count: The number of jobs in the group.
        gpu: The cluster's name of the type of GPU; "" for any.
    """
    needs = request.resources
    cpus = math.ceil(needs.cpu)
    # A whole node has more processors than the job asked for, and they would multiply its memory.
    memory = (
        "--mem=0"
        if ("exclusive", "") in address.options
        else f"--mem-per-cpu={math.ceil(parse_size(needs.ram) / _MEGABYTE / cpus)}M"
    )
    options = [
        *address.arguments(),
        f"--job-name={name}",
        f"--ntasks={request.replica_count}",
        f"--cpus-per-task={cpus}",
        memory,
        f"--signal=B:USR1@{WARNING_SECONDS}",
        "--requeue" if request.max_retries_preemption else "--no-requeue",
    ]
    if isinstance(needs.device, GpuConfig):
        options.append(f"--gpus-per-task={gpu}{':' if gpu else ''}{needs.device.count}")
    if count > 1:
        options.append(f"--array=0-{count - 1}")
    if group is not None:
        log = group.path / ("slurm.log" if count == 1 else "slurm-%a.log")
        options += [f"--comment={group.comment}", f"--output={log}", "--open-mode=append", f"--chdir={group.path}"]
    return options


def write_script(folder: Path, python: str, group: Group | None) -> str:
    """Write the batch script of a group and return its path; without a group, a script for `sbatch --test-only`."""
    text = "#!/bin/sh\n"
    if group is not None:
        text += f"exec {shlex.quote(python)} -P -m fray.backends.slurm.runner {shlex.quote(str(group.path))}\n"
    path = folder / "job.sh" if group is None else group.script
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    path.write_text(text)
    return str(path)
