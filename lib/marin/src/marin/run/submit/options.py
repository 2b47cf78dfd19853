"""The options of `ray_run`."""

import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of the command line.

    Args:
        command: The job's command.
        env: Explicit variables with their values.
        env_of_files: Variables from files, whose values are not shown. `env` takes precedence.
        project_dependencies: Whether to install the project's dependencies; None: those that the cluster lacks.
        memory: Memory of the job's own process, in bytes.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    env_of_files: Mapping[str, str] = field(default_factory=dict)
    extras: tuple[str, ...] = ()
    pip_deps: tuple[str, ...] = ()
    project_dependencies: bool | None = None
    cluster: str | None = None
    working_dir: Path = Path()
    wait: bool = True
    auto_stop: bool = False
    dry_run: bool = False
    verbose: bool = False
    submission_id: str | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)


def new_submission_id() -> str:
    """Return an id in Ray's format."""
    letters = string.ascii_letters + string.digits
    return "raysubmit_" + "".join(secrets.choice(letters) for _ in range(16))
