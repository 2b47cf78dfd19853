"""Puts what the controller's machine needs into the remote state: this release, and the cluster file."""

import shlex
from importlib.resources import files
from typing import Final
from urllib.parse import quote, urlsplit

import yaml

from iris.autoscale.boot.release import own_release
from iris.autoscale.boot.release import publish as publish_release
from iris.autoscale.boot.script import check_reachable, install_script
from iris.controller.config.document import read_document
from iris.lifecycle.cluster import CloudCluster, label_of
from rigging.filesystem import write_bytes_atomic

_FOLDER: Final = "cluster"


def publish(cluster: CloudCluster) -> str:
    """Write what the controller's machine needs into the remote state; return its startup script. Of a host by ssh,
    which gets all by ssh, return only the cluster file. Blocks.

    Raises:
        InvalidRequest: Machines cannot read the remote state.
    """
    if cluster.host.host:
        return file_without_variables(cluster)
    check_reachable(cluster.state_url)
    release = publish_release(own_release(), cluster.state_url)
    url = f"{cluster.state_url}/{_FOLDER}"
    write_bytes_atomic(f"{url}/{cluster.file_name}", file_without_variables(cluster).encode())
    words = {
        "file": cluster.file_name,
        "file_folder": quote(urlsplit(url).path.strip("/"), safe=""),
        "port": str(cluster.port),
    }
    lines = "".join(f"{name}={shlex.quote(value)}\n" for name, value in words.items())
    return install_script(release, {}) + lines + (files("iris.lifecycle") / "controller.sh").read_text()


def file_without_variables(cluster: CloudCluster) -> str:
    """Return the cluster file with its variables replaced, and with the cluster's name.

    Whoever can read the remote state can act as the cluster, so the text may hold secrets there.
    """
    content = _plain(read_document(cluster.file).content)
    assert isinstance(content, dict)  # it was validated
    return yaml.safe_dump({"name": label_of(cluster.config), **content}, sort_keys=False)


def _plain(content: object) -> object:
    """Return content without variables, in which `$` stands for itself."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_plain(value) for value in content]
    return str(content).replace("$", "$$") if isinstance(content, str) else content
