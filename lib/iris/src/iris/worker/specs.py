"""What the guardian is told to run for an attempt."""

import logging
from collections.abc import Callable

from iris.domain.ids import user_of
from iris.worker.attempt import Attempt, free_ports
from iris.worker.attempt_dirs import AttemptDirectories
from iris.worker.evidence import TAIL_BYTES
from iris.worker.paths import WorkPaths
from iris.worker.runtime.running import ProcessSpec
from iris.worker.task_env import TaskEnvironment, command_line, own_ground
from iris.worker.tokens import TokenFiles

logger = logging.getLogger(__name__)


class SpecMaker:
    """Makes attempts ready to run: their directory, ports and variables.

    Args:
        controller_address: Where tasks find the controller now; asked for every attempt.
        log_limit_bytes: So much of an attempt's log may be on this disk; 0: the default.
    """

    def __init__(
        self,
        paths: WorkPaths,
        directories: AttemptDirectories,
        task_environment: TaskEnvironment,
        tokens: TokenFiles,
        controller_address: Callable[[], str],
        log_limit_bytes: int,
    ) -> None:
        self._paths = paths
        self._directories = directories
        self._task_environment = task_environment
        self._tokens = tokens
        self._controller_address = controller_address
        self._log_limit = log_limit_bytes
        self._own = own_ground()

    def make(self, attempt: Attempt) -> ProcessSpec:
        """What is to run. Mends what a task did to more than its own directory (`rm -rf ../..`, `chmod 000 ..`).

        Raises:
            StartFailed: The command cannot be started. OSError: This worker has no disk for it.
        """
        try:
            return self._make(attempt)
        except (FileNotFoundError, PermissionError) as error:
            logger.warning("%s: a directory of this worker is gone; making all again: %s", attempt.attempt_id, error)
            self._paths.make()
            self._directories.remove(attempt.attempt_id)
            return self._make(attempt)

    def _make(self, attempt: Attempt) -> ProcessSpec:
        ground = attempt.ground or self._own
        request, launch = attempt.request, attempt.request.launch
        attempt.ports = free_ports(launch.ports)
        return ProcessSpec(
            owner=attempt.attempt_id,
            argv=command_line(launch, ground),
            env=self._task_environment.variables(
                request, ground, self._controller_address(), self._tokens.path(request), attempt.ports
            ),
            cwd=self._directories.make(attempt.attempt_id, ground, launch.runtime.working_dir),
            sharer=user_of(launch.job_id) if launch.payload_digest else "",
            log=attempt.log_path,
            log_limit=self._log_limit,
            tail_bytes=TAIL_BYTES if launch.has_accelerator else 0,
            fence_ms=launch.fence_after_ms if launch.exclusive else 0,
            note=attempt.note(),
            mounts=self._directories.mounts(attempt.attempt_id, ground),
        )
