"""A cluster that was chosen."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from iris.client.connection.connection import Connection, Resolver
from iris.client.job_env import JobEnv
from iris.local.state import LocalPaths


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """A cluster that was chosen; nothing is contacted before a client is used.

    Args:
        name: For people: "local", the name of its config, or its address.
        resolve: Finds its controller.
        inside: The job of it that this process runs as.
        user: Whose token it is, where that can act for one user only; empty: not known.
        is_local: Whether it was chosen as the user's own local cluster, or as a local run of a cluster file.
        same_machine: Whether it is that, also when its address chose it: its workers see this machine's files.
        paths: Of a local run of a cluster file: its files; None for the embedded cluster and others.
        file: Of a local run: the cluster file, where one was named.
        token_file: That the user named; empty: none.
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

    def connect(self, *, on_interrupted: Callable[[str], None] | None = None) -> Connection:
        """A connection to it, not yet opened; see `Connection`."""
        attempt_id = self.inside.attempt_id if self.inside else None
        return Connection(self.resolve, attempt_id=attempt_id, on_interrupted=on_interrupted)
