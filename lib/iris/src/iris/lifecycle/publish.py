"""Puts what the controller's machine needs into the remote state: the cluster file, without variables."""

from typing import Final

import yaml

from iris.controller.config.document import read_document
from iris.lifecycle.cluster import CloudCluster
from rigging.errors import InvalidRequest
from rigging.filesystem import write_bytes_atomic

FOLDER: Final = "cluster"


def publish_file(cluster: CloudCluster) -> str:
    """Write the cluster file, with its variables replaced, into the remote state; return its URL.

    Whoever can read the remote state can act as the cluster, so the file may hold secrets there.
    """
    url = f"{cluster.state_url}/{FOLDER}/{cluster.name}.yaml"
    write_bytes_atomic(url, yaml.safe_dump(_plain(read_document(cluster.file).content), sort_keys=False).encode())
    return url


def _plain(content: object) -> object:
    """Return content without variables, in which `$` stands for itself."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_plain(value) for value in content]
    return str(content).replace("$", "$$") if isinstance(content, str) else content


def publish(cluster: CloudCluster) -> str:
    """Write what the controller's machine needs into the remote state; return its startup script."""
    publish_file(cluster)
    raise InvalidRequest(f"{cluster.file}: this release cannot install a controller on a machine yet")
