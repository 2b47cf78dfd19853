"""The token files by which tasks speak to the controller: one a job, readable by their owner only."""

import os

from iris.worker.paths import WorkPaths
from iris.worker.types import Launch


class TokenFiles:
    """Keeps a job's token on disk as long as an attempt of the job is known here."""

    def __init__(self, paths: WorkPaths) -> None:
        self._paths = paths
        self._written: dict[str, tuple[str, str]] = {}
        self._users: dict[str, int] = {}

    def hold(self, launch: Launch) -> None:
        """An attempt of the job is known here from now on."""
        self._users[launch.job_id] = self._users.get(launch.job_id, 0) + 1

    def path(self, launch: Launch) -> str:
        """The job's token file, written if it is not there yet. Raises OSError."""
        written = self._written.get(launch.job_id)
        if written is not None and written[0] == launch.token:
            return written[1]
        path = self._paths.token(launch.job_id)
        temporary = path.with_name(path.name + ".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(launch.token)
        temporary.rename(path)
        self._written[launch.job_id] = (launch.token, str(path))
        return str(path)

    def release(self, launch: Launch) -> None:
        """An attempt of the job is forgotten; the last one removes the file."""
        users = self._users.get(launch.job_id, 0) - 1
        if users > 0:
            self._users[launch.job_id] = users
            return
        self._users.pop(launch.job_id, None)
        if self._written.pop(launch.job_id, None) is not None:
            self._paths.token(launch.job_id).unlink(missing_ok=True)
