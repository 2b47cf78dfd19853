"""The environment variables and the command line of one attempt."""

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from iris.domain.runtime import runtime_text
from iris.worker.host.environment import is_passed_to_tasks
from iris.worker.paths import WorkPaths
from iris.worker.strays.orphans import ATTEMPT_VARIABLE, WORK_DIR_VARIABLE
from iris.worker.types import Launch, StartRequest

_WORKER_ONLY: Final = frozenset({"UV_PROJECT_ENVIRONMENT", "UV_PROJECT", "UV_PYTHON", "UV_RUN_RECURSION_DEPTH"})
_WORKERS_PLACES: Final = frozenset({"TMPDIR", "UV_CACHE_DIR", "UV_CREDENTIALS_DIR", "PIP_CACHE_DIR"})

ACTOR_HOST_VARIABLE: Final = "IRIS_ACTOR_HOST"
"""The variable with the address of a task's actors; without it only tasks on the same host can reach them."""

_CALLABLE_MAIN: Final = str(Path(__file__).parents[1] / "callable_main.py")

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """The programs, code and files of a job's attempts."""

    bin_dirs: tuple[str, ...] = ()
    """Prepended to the worker's PATH; the first contains the `python` of the task."""
    python_path: tuple[str, ...] = ()
    bundle_dir: Path | None = None
    """The unpacked bundle, shared by attempts and never changed."""
    virtual_env: str = ""
    payload_path: str = ""


def worker_environment() -> PreparedEnvironment:
    """Return the environment for tasks without a workspace or packages: the worker's interpreter and environment."""
    virtual_env = sys.prefix if sys.prefix != sys.base_prefix else ""
    return PreparedEnvironment(bin_dirs=(os.path.dirname(sys.executable),), virtual_env=virtual_env)


def base_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's variables that tasks get: needed to run programs, never secret."""
    base = {name: value for name, value in environ.items() if is_passed_to_tasks(name) and name not in _WORKER_ONLY}
    base.setdefault("PATH", DEFAULT_PATH)
    return base


def user_variables(base: Mapping[str, str], home: Path, user: str) -> dict[str, str]:
    """Return the variables of tasks with their own uid, home directory and caches.

    Args:
        base: The result of `base_variables`.
        home: Their home directory.
        user: The tasks' user name, which the system does not know.
    """
    kept = {name: value for name, value in base.items() if name not in _WORKERS_PLACES}
    return {**kept, "HOME": str(home), "USER": user, "LOGNAME": user}


def _nowhere(controller_address: str) -> str:
    del controller_address
    return ""


class TaskEnvironment:
    """Creates the environment variables of attempts on one worker.

    Args:
        base: As returned by `base_variables`.
        own_address: Returns this host's address for other hosts, given the controller's address; empty if they cannot
            reach this host.
    """

    def __init__(
        self,
        paths: WorkPaths,
        worker_id: str,
        base: Mapping[str, str],
        own_address: Callable[[str], str] = _nowhere,
    ) -> None:
        self._paths = paths
        self._work_dir = str(paths.root)
        self._worker_id = worker_id
        self.base = base
        self._own_address = own_address
        self._own_addresses: dict[str, str] = {}

    def variables(
        self,
        request: StartRequest,
        prepared: PreparedEnvironment,
        controller_address: str,
        token_path: str,
        ports: Mapping[str, int],
        temporary: str = "",
    ) -> dict[str, str]:
        """Return all variables of an attempt; arguments as in `common` and `own`."""
        return self.common(request.launch, prepared, controller_address) | self.own(
            request, token_path, ports, temporary
        )

    def own(
        self, request: StartRequest, token_path: str, ports: Mapping[str, int], temporary: str = ""
    ) -> dict[str, str]:
        """Return an attempt's own variables, which override the common ones.

        Args:
            request: The attempt.
            token_path: Its token file.
            ports: The number of each requested port.
            temporary: Its TMPDIR, if the job sets none; empty for none.
        """
        launch = request.launch
        env = {
            ATTEMPT_VARIABLE: request.attempt_id,
            "IRIS_JOB_ID": launch.job_id,
            "IRIS_NUM_TASKS": str(launch.replicas),
            "IRIS_TASK_ID": request.task_id,
            "IRIS_TASK_INDEX": str(request.task_index),
            "IRIS_TOKEN_FILE": token_path,
            "IRIS_ERROR_FILE": self._paths.error(request.attempt_id),
        }
        if not self._paths.uid:
            env["IRIS_LOG_FILE"] = self._paths.log(request.attempt_id)  # others cannot read it
        if temporary and "TMPDIR" not in launch.env_vars:
            env["TMPDIR"] = temporary
        for name, port in ports.items():
            env[port_variable(name)] = str(port)
        return env

    def common(self, launch: Launch, prepared: PreparedEnvironment, controller_address: str) -> dict[str, str]:
        """Return the variables that all attempts of a job share, even different jobs with equal settings.

        The job's variables override the worker's. The only IRIS_* variable that a job can override is its actors'
        address, because the job may know a faster network.

        Args:
            launch: The job.
            prepared: Its environment.
            controller_address: The controller's address for tasks.
        """
        env = {**self.base, "PYTHONUNBUFFERED": "1"}
        if prepared.virtual_env:
            env["VIRTUAL_ENV"] = prepared.virtual_env
        if host := self._source_address(controller_address):
            env[ACTOR_HOST_VARIABLE] = host
        env.update(launch.env_vars)
        env["PATH"] = _joined(prepared.bin_dirs, env.get("PATH", ""))
        if prepared.python_path:
            env["PYTHONPATH"] = _joined(prepared.python_path, launch.env_vars.get("PYTHONPATH", ""))
        env |= {
            WORK_DIR_VARIABLE: self._work_dir,
            "IRIS_CONTROLLER_ADDRESS": controller_address,
            "IRIS_WORKER_ID": self._worker_id,
            "IRIS_BUNDLE_DIGEST": launch.bundle_digest,
            "IRIS_EXTRAS": json.dumps(launch.extras) if launch.extras else "[]",
            "IRIS_PIP_PACKAGES": json.dumps(launch.pip_packages) if launch.pip_packages else "[]",
            "IRIS_RUNTIME": runtime_text(launch.runtime),
        }
        if launch.payload_digest:
            env["IRIS_CLOUDPICKLE"] = _cloudpickle_directory()
            env["IRIS_PICKLED_BY"] = launch.runtime.python
        if prepared.bundle_dir is not None:
            env["IRIS_WORKSPACE_DIR"] = str(prepared.bundle_dir)
        return env

    def _source_address(self, controller_address: str) -> str:
        # A name that must be looked up would hold every start up for that long.
        known = self._own_addresses.get(controller_address)
        if known is None:
            known = self._own_addresses[controller_address] = self._own_address(controller_address)
        return known


def port_variable(name: str) -> str:
    """Return the name of the variable with the number of the task's port `name`."""
    return "IRIS_PORT_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def command_line(launch: Launch, prepared: PreparedEnvironment) -> tuple[str, ...]:
    """Return the argv of an attempt. For a callable, the task's interpreter runs callable_main."""
    if not launch.payload_digest:
        return launch.argv
    # -P: the script's directory holds the worker's modules, which must not shadow anything of the job's.
    return ("python", "-P", _CALLABLE_MAIN, prepared.payload_path)


def callable_sources() -> tuple[str, ...]:
    """Return the files and directories of the worker that run a callable."""
    return tuple(filter(None, (_CALLABLE_MAIN, _cloudpickle_directory())))


@cache
def _cloudpickle_directory() -> str:
    spec = importlib.util.find_spec("cloudpickle")
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else ""


def _joined(first: tuple[str, ...], rest: str) -> str:
    return os.pathsep.join((*first, rest)) if rest else os.pathsep.join(first)
