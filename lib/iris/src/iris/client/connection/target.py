"""A chosen cluster."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from iris.client.connection.connection import Connection, Resolver
from iris.client.job_env import JobEnv
from iris.local.state import LocalPaths


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """A chosen cluster. The controller is not contacted before the first call.

    Args:
        name: Readable name: "local", the name of its config, or its address.
        resolve: Returns its controller's location.
        inside: The job of that cluster in which this process runs.
        user: The token's only user; empty if the token is valid for several or the user is unknown.
        is_local: Whether it is the user's local cluster or a local run of a cluster file.
        same_machine: Whether its workers see this machine's files.
        paths: The files of a local run of a cluster file; None for the embedded cluster and others.
        file: The cluster file of a local run, if the user named one.
        token_file: The token file that the user named; empty for none.
    """

    name: str
    resolve: Resolver = field(repr=False)
    inside: JobEnv | None = None
    is_local: bool = False
    user: str = ""
    same_machine: bool = False
    paths: LocalPaths | None = None
    file: Path | None = None
    token_file: str = ""

    def connect(
        self, *, on_interrupted: Callable[[str], None] | None = None, patience: float | None = None
    ) -> Connection:
        """Return a connection to the cluster, not yet opened (see `Connection`).

        Args:
            on_interrupted: As in `Connection`.
            patience: Seconds that the controller may take to answer; None for the connection's own limits.
        """
        attempt_id = self.inside.attempt_id if self.inside else None
        limits = {} if patience is None else {"reconnect_timeout": patience, "connect_timeout": patience}
        return Connection(self.resolve, attempt_id=attempt_id, on_interrupted=on_interrupted, **limits)
