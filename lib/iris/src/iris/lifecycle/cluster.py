"""A cluster whose file says where its controller runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris.autoscale.rules import ControllerHost
from iris.controller.config.cluster_file import ClusterConfig, read_cluster_config
from iris.rpc.auth import PrincipalKind, make_token
from iris.store.replicate.remote import RemoteState
from iris.tls.certificates import digest_of
from iris.tls.pins import PinnedToken
from iris.user_name import default_user
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from iris.lifecycle.machines import Machines

DEFAULT_PORT: Final = 7077


@dataclass(frozen=True, slots=True)
class CloudCluster:
    """A cluster that `iris cluster start FILE` starts.

    Args:
        name: The file's name without its suffix.
        file: The cluster file. config: Its content.
        host: Where the controller runs.
    """

    name: str
    file: Path
    config: ClusterConfig
    host: ControllerHost

    @property
    def port(self) -> int:
        """Return the controller's port."""
        return self.host.port or self.config.port or DEFAULT_PORT

    @property
    def file_name(self) -> str:
        """Return the name of the file on the controller's machine."""
        return f"{self.name}.yaml"

    @property
    def state_url(self) -> str:
        """Return the remote state directory."""
        return self.config.remote_state_dir.rstrip("/")

    def machines(self) -> "Machines":
        """Return what deals with its machines. Blocks.

        Raises:
            InvalidRequest: The file lacks what the platform needs, or packages are missing.
        """
        from iris.autoscale.gcp.ownership import Owner, cluster_id

        owner = Owner(label_of(self.config), cluster_id(self.state_url))
        groups = self.config.scale_groups
        if self.host.host:
            from iris.autoscale.boot.release import own_release
            from iris.autoscale.manual.ssh import Ssh
            from iris.lifecycle.by_ssh import SshMachines

            ssh = Ssh(self.config.platform.ssh)
            return SshMachines(ssh, owner.label, self.host.host, self.port, groups, own_release(), self.state_url)
        from iris.autoscale.gcp.api import google_api
        from iris.lifecycle.google import GoogleMachines

        return GoogleMachines(google_api(), owner, self.config.platform.project_id, self.host, groups)

    def token(self) -> str:
        """Return an admin token for this user, made of the secret in the remote state; empty before there is one."""
        remote = RemoteState(self.state_url)
        secret = remote.get_secret("secret")
        authority = remote.get_authority(("ca.pem",)).get("ca.pem")
        if secret is None or authority is None:
            return ""
        return PinnedToken(
            make_token(bytes.fromhex(secret.decode()), PrincipalKind.ADMIN, default_user()), digest_of(authority)
        ).text


def label_of(config: ClusterConfig) -> str:
    """Return the name with which a cluster's machines are labelled."""
    return config.platform.label_prefix or config.name or (config.path.stem if config.path is not None else "")


def cloud_cluster(path: Path) -> CloudCluster | None:
    """Return the cluster of a file; None if the file says nothing of a machine for the controller.

    Raises:
        InvalidRequest: The file is invalid, or lacks what such a cluster needs.
    """
    config = read_cluster_config(path)
    host = config.platform.controller
    if host is None or config.address:
        return None
    needed = {
        "storage.remote_state_dir": (config.remote_state_dir, "gs://BUCKET/DIRECTORY"),
        **(
            {}
            if host.host
            else {
                "controller.gcp.zone": (host.zone, "a zone such as us-central1-a"),
                "platform.gcp.project_id": (config.platform.project_id, "the project"),
            }
        ),
    }
    missing = [f"{key} ({example})" for key, (value, example) in needed.items() if not value]
    if missing:
        raise InvalidRequest(f"{path}: a controller on a machine of its own needs {', '.join(missing)}; add it")
    return CloudCluster(path.stem, path, config, host)
