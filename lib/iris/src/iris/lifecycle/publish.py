"""Puts what the controller's machine needs into the remote state: this release, and the cluster file."""

import json
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
from rigging.errors import Conflict, InvalidRequest
from rigging.filesystem import read_bytes_or_none, url_to_fs, write_bytes_atomic

_FOLDER: Final = "cluster"
_STARTED: Final = "started.json"
"""The file with the name, port, cluster file and host (empty: at Google) of the last start; `stop` removes it."""


def publish(cluster: CloudCluster) -> str:
    """Write what the controller's machine needs into the remote state; return its startup script. Of a host by ssh,
    which gets all by ssh, return only the cluster file. Blocks.

    Raises:
        InvalidRequest: Machines cannot read the remote state.
    """
    _record(cluster)
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


def check_host(cluster: CloudCluster) -> None:
    """Raise Conflict if the cluster was started with its controller elsewhere than the file says. Blocks."""
    found = _started(cluster)
    if found is not None and found[3] != cluster.host.host:
        raise Conflict(
            f"cluster {found[0]} was started with its controller {_at(found[3])}, and {cluster.file} says "
            f"{_at(cluster.host.host)}: stop it first with the former file. If that machine is gone for good, remove "
            f"{_record_of(cluster)}. Nothing was changed"
        )


def check_start(cluster: CloudCluster, *, runs: bool) -> None:
    """Raise Conflict if the remote state is that of another cluster, or of this one with another port. Blocks.

    Args:
        cluster: The cluster to start.
        runs: Whether its controller has a machine that works.
    """
    found = _started(cluster)
    if found is None:
        return
    name, port, file, _ = found
    if name != label_of(cluster.config):
        raise Conflict(
            f"{cluster.state_url} has the state of cluster {name}, started from {file}; give {cluster.file} another "
            f"storage.remote_state_dir, or stop {name} first with `iris cluster stop {file}`"
        )
    if runs and port != cluster.port:
        raise Conflict(
            f"cluster {name} runs on port {port}, started from {file}, and {cluster.file} says {cluster.port}; "
            f"`iris --config {cluster.file} cluster controller restart` changes it. Another cluster needs another "
            "name and storage.remote_state_dir. Nothing was changed"
        )


def forget_start(cluster: CloudCluster) -> None:
    """Remove the record of a cluster that is stopped, so that another one may have its remote state. Blocks."""
    if _started(cluster) is not None:
        fs, path = url_to_fs(_record_of(cluster))
        fs.rm_file(path)


def _record(cluster: CloudCluster) -> None:
    content = {
        "name": label_of(cluster.config),
        "port": cluster.port,
        "file": str(cluster.file),
        "host": cluster.host.host,
    }
    write_bytes_atomic(_record_of(cluster), json.dumps(content).encode())


def _record_of(cluster: CloudCluster) -> str:
    return f"{cluster.state_url}/{_FOLDER}/{_STARTED}"


def _at(host: str) -> str:
    return f"on host {host}" if host else "at Google"


def _started(cluster: CloudCluster) -> tuple[str, int, str, str] | None:
    url = _record_of(cluster)
    found = read_bytes_or_none(url)
    if found is None:
        return None
    try:
        fields = json.loads(found)
        return fields["name"], fields["port"], fields["file"], fields["host"]
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidRequest(f"{url} is damaged ({error}); remove it") from None


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
