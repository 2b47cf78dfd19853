"""The variables by which a task knows where it is; no job can have them otherwise."""

from typing import Final

_OWN: Final = frozenset(
    {"IRIS_ATTEMPT_ID", "IRIS_JOB_ID", "IRIS_NUM_TASKS", "IRIS_TASK_ID", "IRIS_TASK_INDEX", "IRIS_TOKEN_FILE"}
    | {"IRIS_ERROR_FILE", "IRIS_WORK_DIR", "IRIS_CONTROLLER_ADDRESS", "IRIS_WORKER_ID", "IRIS_BUNDLE_DIGEST"}
    | {"IRIS_EXTRAS", "IRIS_PIP_PACKAGES", "IRIS_RUNTIME", "IRIS_WORKSPACE_DIR", "IRIS_OUTPUT_PIPES"}
    | {"IRIS_LOG_FILE"}
)


def is_own_variable(name: str) -> bool:
    """True if a task is told this variable by its worker, whatever its job says."""
    return name in _OWN
