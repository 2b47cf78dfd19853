"""Finding a cluster: one named, one configured, the one this job runs on, or the user's local one."""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from iris.client.connection.connection import Connection, Resolver, parse_address
from iris.client.job_env import JobEnv, job_env, read_token_file
from iris.local.start import LocalCluster
from iris.local.state import WORKER_ID, ClusterRecord, LocalPaths, local_paths, read_record
from iris.rpc.auth import user_of_token
from iris.rpc.controller_address import ControllerAddress
from rigging.config_discovery import resolve_cluster_config
from rigging.errors import InvalidRequest, MarinError

LOCAL: Final = "local"
TOKEN_FILE_ENV: Final = "IRIS_TOKEN_FILE"


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """A cluster that was chosen; nothing is contacted before a client is used.

    Args:
        name: For people: "local", the name of its config, or its address.
        resolve: Finds its controller.
        inside: The job of it that this process runs as.
        user: Whose token it is, where that can act for one user only; empty: not known.
        is_local: Whether it was chosen as the user's own local cluster.
        same_machine: Whether it is that, also when its address chose it: its workers see this machine's files.
    """

    name: str
    resolve: Resolver = field(repr=False)
    inside: JobEnv | None = None
    is_local: bool = False
    user: str = ""
    same_machine: bool = False

    def connect(self, *, on_interrupted: Callable[[str], None] | None = None) -> Connection:
        """A connection to it, not yet opened; see `Connection`."""
        attempt_id = self.inside.attempt_id if self.inside else None
        return Connection(self.resolve, attempt_id=attempt_id, on_interrupted=on_interrupted)


def find_cluster(
    cluster: str | None = None,
    *,
    config: str | None = None,
    address: str | None = None,
    environ: Mapping[str, str] | None = None,
    local: LocalCluster | None = None,
) -> ClusterTarget:
    """Choose a cluster: the one given, else that of the job this runs in, else the user's local one.

    Args:
        cluster: "local", or the name of a config file (see `rigging.config_discovery`).
        config: A config file: YAML with `controller: {address: "host:port", token_file: PATH}`.
        address: "host:port".
        environ: Instead of os.environ.
        local: The local cluster to use when that is the choice.

    Raises:
        InvalidRequest: More than one of the three is given, or the config lacks its controller's address.
        NotFound: No cluster of that name.
    """
    environ = os.environ if environ is None else environ
    given = [
        name for name, value in (("--controller-url", address), ("--config", config), ("--cluster", cluster)) if value
    ]
    if len(given) > 1:
        raise InvalidRequest(f"{' and '.join(given)} both name a cluster; give one")
    if address:
        return cluster_at(address, environ=environ)
    if cluster == LOCAL:
        return local_cluster(local)
    if config or cluster:
        return _configured(resolve_cluster_config(config or cluster or ""))
    inside = job_env(environ)
    if inside is not None:
        return cluster_at(inside.controller_address, environ=environ)
    return local_cluster(local)


def local_cluster(local: LocalCluster | None = None) -> ClusterTarget:
    """The user's local cluster; it is started when it does not run, unless it answered this client before."""
    cluster = local or LocalCluster()

    def resolve(answered: bool) -> ControllerAddress:
        record = cluster.find() if answered else cluster.ensure().record
        # Without a new one the old record stands: a client that waits may yet see the controller come back there.
        record = record or read_record(cluster.paths)
        if record is None:
            return ControllerAddress("127.0.0.1:1", "")
        return ControllerAddress(record.address, record.token, str(cluster.paths.socket))

    return ClusterTarget(LOCAL, resolve, is_local=True, same_machine=True)


def running_cluster(record: ClusterRecord) -> ClusterTarget:
    """The user's local cluster as it runs now, whether it can take jobs or not; never another, nor a new one."""
    endpoint = ControllerAddress(record.address, record.token)
    return ClusterTarget(LOCAL, lambda _: endpoint, is_local=True, same_machine=True)


def cluster_at(
    address: str,
    *,
    token: str | None = None,
    token_file: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> ClusterTarget:
    """Return the cluster whose controller is at `address`.

    Args:
        address: "host:port".
        token: Shown to the controller.
        token_file: A file that holds the token; read again at each connection.
        environ: The environment; None: this process's.
    """
    environ = os.environ if environ is None else environ
    target = parse_address(address)
    inside = job_env(environ)
    if inside is not None and parse_address(inside.controller_address) != target:
        inside = None  # a job of one cluster that is a plain client of another
    token_file = token_file or environ.get(TOKEN_FILE_ENV)

    def resolve(answered: bool) -> ControllerAddress:  # noqa: ARG001 - a fixed address
        if token is not None:
            return ControllerAddress(target, token)
        if token_file:
            return ControllerAddress((inside and _local_address(inside)) or target, read_token_file(token_file))
        record = read_record(local_paths(environ))
        return ControllerAddress(target, record.token if record and record.address == target else "")

    record = read_record(local_paths(environ))
    same_machine = inside.worker_id == WORKER_ID if inside else record is not None and record.address == target
    user = user_of_token(token or _peek(token_file))
    return ClusterTarget(target, resolve, inside, user=user, same_machine=same_machine)


def _local_address(inside: JobEnv) -> str:
    """Return the present address of the local cluster's controller, for a job of it; empty for another cluster's."""
    if inside.worker_id != WORKER_ID or not inside.work_dir:
        return ""
    record = read_record(LocalPaths(Path(inside.work_dir).parent))
    return record.address if record else ""


def _configured(path: Path) -> ClusterTarget:
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidRequest(f"cannot read the cluster config {path}: {error}") from None
    controller = content.get("controller") if isinstance(content, dict) else None
    address = controller.get("address") if isinstance(controller, dict) else None
    if not isinstance(controller, dict) or not isinstance(address, str):
        raise InvalidRequest(f"the cluster config {path} has no controller.address (a text such as 'host:7077')")
    target = parse_address(address)
    token_file = controller.get("token_file")

    def resolve(answered: bool) -> ControllerAddress:  # noqa: ARG001 - a fixed address
        return ControllerAddress(target, read_token_file(os.path.expanduser(str(token_file))) if token_file else "")

    return ClusterTarget(path.stem, resolve, user=user_of_token(_peek(os.path.expanduser(str(token_file or "")))))


def _peek(token_file: str | None) -> str:
    """The token in a file; empty when there is none yet, which matters only once the controller is called."""
    with contextlib.suppress(MarinError):
        return read_token_file(token_file) if token_file else ""
    return ""
