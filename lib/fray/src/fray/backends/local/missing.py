"""Which packages of a job's environment are not there, where nothing is installed for jobs."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fray.types import EnvironmentConfig
from rigging.errors import InvalidRequest
from rigging.project.needs import group_requirements, read_pyprojects


def missing_packages(environment: EnvironmentConfig) -> list[str]:
    """Return what an environment asks for and this process does not have.

    Args:
        environment: Its extras are those of the projects in its workspace.

    Returns:
        Pip requirements as they were given, then extras with the requirements that are not met: `extra cpu (jax>=0.6)`.
    """
    missing = unmet_requirements(environment.pip_packages)
    for extra in environment.extras:
        try:
            requirements = group_requirements(read_pyprojects(Path(environment.workspace or ".")), [extra])
        except InvalidRequest:
            missing.append(f"extra {extra}, which no pyproject.toml here has")
            continue
        unmet = unmet_requirements(requirements)
        if unmet:
            missing.append(f"extra {extra} ({', '.join(unmet)})")
    return missing


def unmet_requirements(requirements: Sequence[str]) -> list[str]:
    """Return the requirements that what is installed does not meet; paths and options are among them.

    Args:
        requirements: As pip has them. Those whose marker is for other machines are met.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    unmet = []
    for text in requirements:
        try:
            wanted = Requirement(text)
            met = (wanted.marker is not None and not wanted.marker.evaluate()) or wanted.specifier.contains(
                version(wanted.name), prereleases=True
            )
        except (InvalidRequirement, PackageNotFoundError):
            met = False
        if not met:
            unmet.append(text)
    return unmet
