"""The target cluster of a command: given by name, file or address, or by Ray's environment variables."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from rigging.config_discovery import find_configs
from rigging.errors import InvalidRequest, NotFound
from rigging.text.yaml_files import yaml_errors

CLUSTER_DIRS: Final = ("infra", "infra/clusters", "~/.config/marin/ray-clusters")
"""Directories of Ray cluster files; relative ones are below the project root, and earlier ones win."""

DEFAULT_ADDRESS: Final = "http://127.0.0.1:8265"
ADDRESS_VARIABLES: Final = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
DASHBOARD_PORT: Final = 8265
_PREFIX: Final = "marin-"
_HOST_AND_PORT: Final = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):\d{1,5}")


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The target cluster of a command.

    Args:
        address: The URL of its Jobs API; empty if only its file is known and a tunnel is needed.
        origin: The source of the target, for messages.
        file: Its Ray cluster file.
        bootstrap: Whether `address` has Ray's own form (`host:6379`, `ray://`, `auto`), which Ray must resolve.
    """

    address: str
    origin: str
    file: Path | None = None
    bootstrap: bool = False


def find_target(cluster: str | None, environ: Mapping[str, str], *, start: Path | None = None) -> ClusterTarget:
    """Return the target of `--cluster`, or without it of RAY_API_SERVER_ADDRESS, RAY_ADDRESS, or Ray's default address.

    Args:
        cluster: A name (`us-central2`, whose file may be `marin-us-central2.yaml`), a file, or a URL.
        environ: The environment variables.
        start: Where to start looking for the project root.

    Raises:
        NotFound: The file or name does not exist. The message lists the known ones.
        InvalidRequest: The file is not a Ray cluster file, or the address is invalid.
    """
    if cluster:
        if "://" in cluster:
            return _from_address(cluster, f"--cluster {cluster}")
        path = find_cluster_file(cluster, start=start)
        read_cluster_file(path)
        return ClusterTarget("", f"--cluster {cluster}", file=path)
    for name in ADDRESS_VARIABLES:
        if environ.get(name):
            return _from_address(environ[name], name)
    return ClusterTarget(DEFAULT_ADDRESS, "Ray's usual address; RAY_ADDRESS is not set")


def find_cluster_file(name: str, *, start: Path | None = None) -> Path:
    """Return the Ray cluster file with a name or path. Raise NotFound."""
    path = Path(name).expanduser()
    looks_like_path = "/" in name or path.suffix in (".yaml", ".yml")
    if looks_like_path and path.is_file():
        return path.absolute()
    known = known_clusters(start=start)
    stem = path.stem if looks_like_path else name
    if "/" not in name:
        for label in (stem, f"{_PREFIX}{stem}"):
            if label in known:
                return known[label]
    near = difflib.get_close_matches(stem, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    what = f"no cluster file {name!r}" if looks_like_path else f"no cluster named {name!r}"
    listed = ", ".join(sorted(known)) or f"none (looked in {', '.join(CLUSTER_DIRS)})"
    raise NotFound(f"{what}{hint}; known clusters: {listed}")


def known_clusters(*, start: Path | None = None) -> dict[str, Path]:
    """Return the Ray cluster files of the project and of the user, by name."""
    return {label: at for label, at in find_configs(CLUSTER_DIRS, start=start).items() if not _is_template(label)}


def read_cluster_file(path: Path) -> dict[str, Any]:
    """Return the content of a Ray cluster file. Raise InvalidRequest for any other file."""
    with yaml_errors(path):
        text = path.read_text(encoding="utf-8")
    return parse_cluster_file(text, str(path))


def parse_cluster_file(text: str, origin: str) -> dict[str, Any]:
    """Return the content of a Ray cluster file's text.

    Args:
        text: The text.
        origin: The source of the text, for errors.

    Raises:
        InvalidRequest: The text is not a Ray cluster file.
    """
    with yaml_errors(origin):
        found = yaml.safe_load(text)
    if not isinstance(found, dict) or not isinstance(found.get("provider"), dict) or not found.get("cluster_name"):
        raise InvalidRequest(f"{origin} is not a Ray cluster file: it has no cluster_name and provider")
    types = found.get("available_node_types") or {}
    if not isinstance(types, dict):
        raise InvalidRequest(f"{origin}: available_node_types is not an object: {types!r}")
    for name, node_type in types.items():
        if not isinstance(node_type, dict):
            raise InvalidRequest(f"{origin}: available_node_types.{name} is not an object: {node_type!r}")
    return found


def _is_template(label: str) -> bool:
    return label.endswith("-template")


def _from_address(text: str, origin: str) -> ClusterTarget:
    address = text.strip().rstrip("/")
    scheme, separator, rest = address.partition("://")
    if separator and scheme in ("http", "https") and rest:
        return ClusterTarget(address, origin)
    if address == "auto" or (separator and scheme == "ray" and rest):
        return ClusterTarget(address, origin, bootstrap=True)
    if not separator and _HOST_AND_PORT.fullmatch(address):
        return ClusterTarget(address, origin, bootstrap=True)
    raise InvalidRequest(
        f"{origin}: {text!r} is not an address of a Ray cluster; write http://HOST:{DASHBOARD_PORT}, ray://HOST:PORT, "
        "HOST:PORT or auto"
    )
