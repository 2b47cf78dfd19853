"""Translate fray's resources and environments to Ray's: pure functions that do not import ray."""

import functools
import glob
import hashlib
import json
import logging
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fray.requests.checks import parse_size
from fray.types import ActorConfig, CpuConfig, EnvironmentConfig, GpuConfig, ResourceConfig, TpuConfig
from rigging.errors import InvalidRequest
from rigging.filesystem.budget import MARIN_MIRROR_BUDGET_ENV
from rigging.project.needs import group_requirements, read_pyprojects, requirement_name
from rigging.text.quantities import format_size
from rigging.topology import get_tpu_topology

logger = logging.getLogger(__name__)

PACKAGES_ENV = "FRAY_RAY_PACKAGES"
PACKAGES_FOLDER = "fray-ray-packages-"
# Ray sets the one for the programs that it submits, we the other in jobs.
_IN_A_RAY_JOB = ("RAY_JOB_CONFIG_JSON_ENV_VAR", "FRAY_RAY_NAMESPACE")


class ResolvedEnvironment(NamedTuple):
    """A request's environment in Ray's terms.

    Args:
        runtime_env: Ray's runtime environment, which needs separate worker processes; None for the default.
        late_env: Variables to set when the job begins, because they differ from job to job.
        workspace: The working directory, if it exists there.
        packages: Requirements to install before the job begins.
    """

    runtime_env: dict[str, Any] | None = None
    late_env: Mapping[str, str] | None = None
    workspace: str | None = None
    packages: tuple[str, ...] = ()


def head_resource(tpu_type: str) -> str:
    """Return the resource that Ray gives to exactly one host of each slice of a TPU type."""
    return f"TPU-{tpu_type}-head"


def host_resources(resources: ResourceConfig) -> dict[str, float]:
    """Return the resources that one replica reserves on its host, by Ray's names; memory in bytes."""
    taken: dict[str, float] = {"CPU": resources.cpu, "memory": parse_size(resources.ram)}
    device = resources.device
    if isinstance(device, GpuConfig):
        taken["GPU"] = device.count
        taken[f"accelerator_type:{device.variant}"] = 0.001
    elif isinstance(device, TpuConfig):
        shape = get_tpu_topology(device.variant)
        taken["TPU"] = shape.chips_per_vm
        if shape.vm_count == 1:
            taken[head_resource(device.variant)] = 1
    return taken


def task_options(taken: Mapping[str, float]) -> dict[str, Any]:
    """Return the options of a Ray task or actor with these resources."""
    custom = {name: amount for name, amount in taken.items() if name not in ("CPU", "GPU", "memory")}
    options: dict[str, Any] = {"num_cpus": taken.get("CPU", 0)}
    if taken.get("memory"):
        options["memory"] = int(taken["memory"])
    if taken.get("GPU"):
        options["num_gpus"] = taken["GPU"]
    if custom:
        options["resources"] = custom
    return options


def actor_options(resources: ResourceConfig | None, config: ActorConfig) -> dict[str, Any]:
    """Return the options of a Ray actor. Without resources it reserves no CPU."""
    options: dict[str, Any] = {"num_cpus": 0} if resources is None else task_options(host_resources(resources))
    env = {} if resources is None or isinstance(resources.device, CpuConfig) else resources.device.default_env_vars()
    if env:
        options["runtime_env"] = {"env_vars": env}
    return {
        **options,
        "max_concurrency": config.max_concurrency,
        "max_restarts": config.max_restarts or 0,
        "max_task_retries": config.max_task_retries or 0,
    }


def shortfall(taken: Mapping[str, float], nodes: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why the request fits on no node, even an idle one, naming the closest; None if it fits.

    Args:
        taken: The request for one node.
        nodes: Nodes from `ray.nodes()`.
    """
    best: tuple[int, str] | None = None
    for node in nodes:
        if not node["Alive"]:
            continue
        has = node["Resources"]
        missing = [
            f"{name}: {amount:g} requested, {has.get(name, 0):g} available"
            for name, amount in taken.items()
            if amount > has.get(name, 0)
        ]
        if not missing:
            return None
        if best is None or len(missing) < best[0]:
            best = (len(missing), "; ".join(missing))
    return best[1] if best else "the cluster has no node"


def lacking(taken: Mapping[str, float], free: Mapping[str, float]) -> str:
    """Return why the cluster currently lacks capacity for a request; "" if the request may fit.

    Args:
        taken: The request for one node.
        free: The free resources of all nodes together.
    """
    missing = [
        f"{name} ({_amount(name, amount)} requested, {_amount(name, free.get(name, 0))} free)"
        for name, amount in taken.items()
        if amount > free.get(name, 0)
    ]
    return f"waits for {', '.join(missing)}" if missing else ""


def _amount(name: str, value: float) -> str:
    return format_size(int(value)) if name == "memory" else f"{value:g}"


def resolve_environment(
    environment: EnvironmentConfig | None,
    resources: ResourceConfig,
    budget: Mapping[str, str],
    job: str,
    *,
    environ: Mapping[str, str] | None = None,
) -> ResolvedEnvironment:
    """Translate a request's environment for Ray.

    The transfer budget is set late, because it differs from job to job and each `runtime_env` needs new processes.

    Args:
        environment: The request's environment; None for the default.
        resources: The request's resources. The device adds variables.
        budget: Variables with the current transfer budget.
        job: The job's name in warnings.
        environ: The submitter's variables; None for `os.environ`.

    Raises:
        InvalidRequest: The workspace's project does not have the requested extra.
    """
    environ = os.environ if environ is None else environ
    device_env = {} if isinstance(resources.device, CpuConfig) else resources.device.default_env_vars()
    late = dict(budget)
    if environment is None:
        return ResolvedEnvironment(_runtime_env(device_env), late)
    for image in (environment.docker_image, resources.image):
        if image is not None:
            logger.warning("job %r: image %r is not used: Ray runs jobs in the image of its nodes", job, image)
    env_vars = {**device_env, **environment.env_vars}
    if MARIN_MIRROR_BUDGET_ENV in env_vars:
        late[MARIN_MIRROR_BUDGET_ENV] = env_vars.pop(MARIN_MIRROR_BUDGET_ENV)
    packages = [*environment.pip_packages, *extra_packages(environment.workspace, environment.extras)]
    kept = without_ray(packages, job)
    if kept:
        # Processes with packages of their own are kept apart from others by this variable.
        env_vars[PACKAGES_ENV] = packages_digest(kept)
    members = member_paths(environment.workspace)
    if members:
        given = [env_vars["PYTHONPATH"]] if env_vars.get("PYTHONPATH") else []
        env_vars["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*given, *members, *_inherited_paths(environ)]))
    return ResolvedEnvironment(_runtime_env(env_vars), late, environment.workspace, kept)


def _inherited_paths(environ: Mapping[str, str]) -> list[str]:
    """Return the surrounding Ray job's import path. Ray would drop it for a job with its own path.

    Packages of the job in this process are excluded, because its children do not inherit them.
    """
    if not any(name in environ for name in _IN_A_RAY_JOB):
        return []
    paths = environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and f"/{PACKAGES_FOLDER}" not in path]


def packages_digest(packages: Sequence[str]) -> str:
    """Return a digest of a set of requirements."""
    return hashlib.sha256(json.dumps(sorted(packages)).encode()).hexdigest()[:16]


def without_ray(packages: Sequence[str], job: str) -> tuple[str, ...]:
    """Return the requirements without ray: jobs use the cluster's version, and another would break them."""
    kept = []
    for package in packages:
        if requirement_name(package) == "ray":
            logger.warning("job %r: %r is not installed: jobs on Ray use the cluster's own Ray", job, package)
        else:
            kept.append(package)
    return tuple(dict.fromkeys(kept))


def extra_packages(workspace: str | None, extras: Sequence[str]) -> list[str]:
    """Return the requirements of extras of the workspace's project and its members.

    Raises:
        InvalidRequest: The group does not exist.
    """
    if not extras:
        return []
    return group_requirements(read_pyprojects(Path(workspace or ".")), extras)


def member_paths(workspace: str | None) -> list[str]:
    """Return the source folders of a uv workspace's members, for PYTHONPATH; empty without members."""
    members = _members(workspace)
    if not members or workspace is None:
        return []
    return [workspace, *(src if os.path.isdir(src := os.path.join(path, "src")) else path for path in members)]


def _members(workspace: str | None) -> list[str]:
    if workspace is None:
        return []
    patterns = _read_pyproject(workspace).get("tool", {}).get("uv", {}).get("workspace", {}).get("members", [])
    found = [path for pattern in patterns for path in sorted(glob.glob(os.path.join(workspace, pattern)))]
    return [path for path in found if os.path.isfile(os.path.join(path, "pyproject.toml"))]


def _read_pyproject(directory: str) -> dict[str, Any]:
    path = f"{directory}/pyproject.toml"
    if not os.access(path, os.F_OK):  # most workspaces of tests and scripts; an exception costs several times as much
        return {}
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError:
        return {}
    return _parsed(path, changed)


@functools.lru_cache(maxsize=64)
def _parsed(path: str, _changed: int) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{path} is not valid TOML: {error}") from None


def _runtime_env(env_vars: Mapping[str, str]) -> dict[str, Any] | None:
    return {"env_vars": dict(env_vars)} if env_vars else None
