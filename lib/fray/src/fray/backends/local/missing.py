"""Missing packages of a job's environment, for backends that install nothing."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fray.types import EnvironmentConfig
from rigging.errors import InvalidRequest
from rigging.project.needs import group_requirements, read_pyprojects


def missing_packages(environment: EnvironmentConfig) -> list[str]:
    """Return the requirements of an environment that are not installed in this process.

    Args:
        environment: The job's environment. Its extras are looked up in the projects of its workspace.

    Returns:
        Pip requirements as given, then extras with their unmet requirements: `extra cpu (jax>=0.6)`.
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
    """Return the requirements that the installed packages do not meet. Paths and options count as unmet.

    Args:
        requirements: Requirements in pip's format. Those with markers for other machines count as met.
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
