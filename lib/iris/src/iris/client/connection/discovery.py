"""Find a cluster: by name, by configuration, the current job's, or the user's local cluster."""

import contextlib
import os
from collections.abc import Mapping
from typing import Final

from iris.client.connection.cluster_files import named_cluster, peek
from iris.client.connection.target import ClusterTarget
from iris.client.job_env import JobEnv, job_env
from iris.local.start import LocalCluster
from iris.local.state import ClusterRecord, LocalPaths, is_local_worker, local_paths, local_root, read_record
from iris.rpc.auth import user_of_token
from iris.rpc.channels import CA_VARIABLE, INSECURE_VARIABLE
from iris.rpc.controller_address import ControllerAddress, parse_address
from iris.tls.pins import parse_token
from iris.tls.token_file import read_token_file
from rigging.errors import Denied, InvalidRequest

__all__ = [
    "LOCAL", "TOKEN_FILE_ENV", "ClusterTarget", "cluster_at", "find_cluster", "local_cluster", "running_cluster",
]  # fmt: skip

LOCAL: Final = "local"
TOKEN_FILE_ENV: Final = "IRIS_TOKEN_FILE"


def find_cluster(
    cluster: str | None = None,
    *,
    config: str | None = None,
    address: str | None = None,
    token_file: str | None = None,
    insecure: bool = False,
    environ: Mapping[str, str] | None = None,
    local: LocalCluster | None = None,
) -> ClusterTarget:
    """Return the given cluster, else the current job's, else the user's local cluster.

    Args:
        cluster: "local", or the name of a config file (see `rigging.config_discovery`).
        config: A config file; see `named_cluster`.
        address: "host:port" of a controller.
        token_file: A file with the token for the cluster at `address` or in `config`; None for their own.
        insecure: Allow sending the token unencrypted beyond loopback.
        environ: Replaces os.environ.
        local: The local cluster to use as the default.

    Raises:
        InvalidRequest: More than one of `cluster`, `config` and `address` is given, or the config is damaged.
        NotFound: There is no cluster with that name.
    """
    environ = os.environ if environ is None else environ
    given = [
        name for name, value in (("--controller-url", address), ("--config", config), ("--cluster", cluster)) if value
    ]
    if len(given) > 1:
        raise InvalidRequest(f"{' and '.join(given)} both name a cluster; give only one")
    if address:
        return cluster_at(address, token_file=token_file, insecure=insecure, environ=environ)
    if cluster == LOCAL:
        return local_cluster(local)
    if config or cluster:
        return named_cluster(config or cluster or "", environ, token_file=token_file, insecure=insecure)
    inside = job_env(environ)
    if inside is not None:
        return cluster_at(inside.controller_address, environ=environ)
    return local_cluster(local)


def local_cluster(local: LocalCluster | None = None) -> ClusterTarget:
    """Return the user's local cluster. Start it if necessary, unless it has already answered this client."""
    cluster = local or LocalCluster()

    def resolve(answered: bool) -> ControllerAddress:
        record = cluster.find() if answered else cluster.ensure().record
        # Without a new one the old record stands: a client that waits may yet see the controller come back there.
        record = record or read_record(cluster.paths)
        if record is None:
            return ControllerAddress("127.0.0.1:1", "")
        return ControllerAddress(record.address, record.token, str(cluster.paths.socket))

    return ClusterTarget(LOCAL, resolve, is_local=True, same_machine=True)


def running_cluster(record: ClusterRecord, name: str = LOCAL) -> ClusterTarget:
    """Return the user's running local cluster, even if it accepts no jobs. Never start one."""
    endpoint = ControllerAddress(record.address, record.token)
    return ClusterTarget(name, lambda _: endpoint, is_local=True, same_machine=True)


def cluster_at(
    address: str,
    *,
    token: str | None = None,
    token_file: str | None = None,
    insecure: bool = False,
    environ: Mapping[str, str] | None = None,
) -> ClusterTarget:
    """Return the cluster whose controller is at `address`.

    Args:
        address: "host:port" of the controller.
        token: The token to present to the controller.
        token_file: A file with the token, which is read again at each connection.
        insecure: Allow sending the token unencrypted beyond loopback.
        environ: The environment; None for this process's.
    """
    environ = os.environ if environ is None else environ
    target = parse_address(address)
    inside = job_env(environ)
    if inside is not None and parse_address(inside.controller_address) != target:
        inside = None  # a job of one cluster that is a plain client of another
    token_file = token_file or environ.get(TOKEN_FILE_ENV)
    insecure = insecure or environ.get(INSECURE_VARIABLE) == "1"
    ca_sha256 = environ.get(CA_VARIABLE, "") if inside is not None else ""

    def made(where: str, text: str) -> ControllerAddress:
        return ControllerAddress.of(where, text, ca_sha256=ca_sha256, insecure=insecure)

    def resolve(answered: bool) -> ControllerAddress:  # noqa: ARG001 - a fixed address
        if token is not None:
            return made(target, token)
        if token_file:
            return made((inside and _local_address(inside)) or target, read_token_file(token_file))
        record = _own_record(environ)
        return made(target, record.token if record and record.address == target else "")

    record = _own_record(environ)
    same_machine = is_local_worker(inside.worker_id) if inside else record is not None and record.address == target
    user = user_of_token(parse_token(token or peek(token_file)).token)
    used = token_file if token is None and inside is None else None
    return ClusterTarget(target, resolve, inside, user=user, same_machine=same_machine, token_file=used or "")


def _own_record(environ: Mapping[str, str]) -> ClusterRecord | None:
    """Return the record of the user's local cluster; None if it does not exist or belongs to another user."""
    with contextlib.suppress(Denied):
        return read_record(local_paths(environ))
    return None


def _local_address(inside: JobEnv) -> str:
    """Return the current address of the local cluster's controller, for a job of that cluster; empty for jobs of
    others.
    """
    root = local_root(inside.worker_id, inside.work_dir)
    if root is None:
        return ""
    record = read_record(LocalPaths(root))
    return record.address if record else ""
