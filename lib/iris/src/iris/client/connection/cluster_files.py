"""Finds the cluster of a config file: at the file's address, or a local run on this machine."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from iris.client.connection.target import ClusterTarget
from iris.local.saved_clusters import SavedCluster, saved_cluster
from iris.local.settings import read_settings
from iris.local.start import LocalCluster
from iris.local.state import LocalPaths, named_paths
from iris.rpc.auth import user_of_token
from iris.rpc.channels import INSECURE_VARIABLE
from iris.rpc.controller_address import ControllerAddress, parse_address
from iris.tls.pins import parse_token
from iris.tls.token_file import read_token_file
from rigging.config_discovery import ConfigNotFound, resolve_cluster_config
from rigging.errors import Conflict, InvalidRequest, MarinError, Unavailable
from rigging.text.yaml_files import fill_variables, unset_variables, yaml_errors

_SLICES: Final = ("scale_groups", "tpu_pools")


def named_cluster(
    name: str, environ: Mapping[str, str], *, token_file: str | None = None, insecure: bool = False
) -> ClusterTarget:
    """Return the cluster of a file, given by name or path.

    A file with `controller: {address: ...}` refers to the cluster at that address. A file with slices and no address
    refers to its local run on this machine, which `iris cluster start --local --config FILE` starts. The name alone
    also finds a local run.

    Args:
        name: As in `rigging.config_discovery.resolve_cluster_config`.
        environ: The variables that locate the state of local clusters.
        token_file: A file with the token; None for the cluster file's.
        insecure: Allow sending the token unencrypted beyond loopback, even if the cluster's file does not.

    Raises:
        NotFound: There is no file and no local run with that name. InvalidRequest: The file is damaged, or has neither
            an address nor slices.
    """
    try:
        path = resolve_cluster_config(name)
    except ConfigNotFound:
        with contextlib.suppress(InvalidRequest):
            saved = saved_cluster(environ, name)
            if saved is not None:
                _check_started(name, saved)
                return _elsewhere(name, saved.address, token_file or saved.token_file, in_clear=insecure)
            paths = named_paths(environ, name)
            if LocalCluster(paths).find() is not None:
                return local_run(name, paths, None)
        raise
    content = fill_variables(_read(path), environ)
    controller = content.get("controller")
    controller = controller if isinstance(controller, dict) else {}
    address = controller.get("address")
    saved = saved_cluster(environ, path.stem) if address is None else None
    if saved is not None:
        _check_saved(path, saved)
        _check_started(path.stem, saved)
        address, controller = saved.address, {"token_file": saved.token_file}
    if address is None and any(content.get(section) for section in _SLICES):
        return local_run(path.stem, named_paths(environ, path.stem), path)
    for key in ("address", "token_file"):
        for variable in unset_variables(controller.get(key)):
            raise InvalidRequest(f"{path}: controller.{key}: the variable {variable} is not set; set it")
    if not isinstance(address, str):
        raise InvalidRequest(f"the cluster config {path} has no controller.address (a text such as 'host:7077')")
    place = token_file or os.path.expanduser(str(controller.get("token_file") or ""))
    in_clear = insecure or controller.get("insecure") is True or environ.get(INSECURE_VARIABLE) == "1"
    return _elsewhere(path.stem, address, place, in_clear=in_clear)


def _elsewhere(name: str, address: str, token_file: str, *, in_clear: bool) -> ClusterTarget:
    target = parse_address(address)

    def resolve(answered: bool) -> ControllerAddress:  # noqa: ARG001 - a fixed address
        return ControllerAddress.of(target, read_token_file(token_file) if token_file else "", insecure=in_clear)

    user = user_of_token(parse_token(peek(token_file)).token)
    return ClusterTarget(name, resolve, user=user, token_file=token_file)


def _check_saved(path: Path, saved: SavedCluster) -> None:
    """Raise Conflict if the cluster with this name was started from another file."""
    if Path(saved.file).resolve() != path.resolve():
        raise Conflict(
            f"cluster {path.stem} was started from {saved.file}, not from {path}; use --config {saved.file}, or rename "
            "one of the files"
        )


def _check_started(name: str, saved: SavedCluster) -> None:
    """Raise Unavailable if the controller of a cluster elsewhere has never answered."""
    if not saved.address:
        raise Unavailable(
            f"the start of cluster {name} is not finished; `iris cluster start {saved.file}` goes on with it, and "
            f"`iris cluster stop {saved.file}` deletes its machines"
        )


def local_run(name: str, paths: LocalPaths, file: Path | None) -> ClusterTarget:
    """Return the run of a cluster file on this machine. Using it never starts it.

    Args:
        name: The cluster's name.
        paths: The run's files.
        file: The requested cluster file; None for the file of the run.
    """

    def resolve(answered: bool) -> ControllerAddress:  # noqa: ARG001 - it is looked for anew each time
        record = LocalCluster(paths).find()
        if record is None:
            raise Unavailable(not_running(name, file))
        _check_file(name, paths, file)
        return ControllerAddress(record.address, record.token, str(paths.socket))

    return ClusterTarget(name, resolve, is_local=True, same_machine=True, paths=paths, file=file)


def not_running(name: str, file: Path | None) -> str:
    """Return the error for a cluster without an address or a local run."""
    return (
        f"cluster {name} cannot be reached: {file or 'its file'} has no controller.address, and it has no local run; "
        f"`iris cluster start --local --config {file or 'FILE'}` starts one with simulated slices; without --local, it "
        "starts the cluster itself if the file has controller.gcp or .manual"
    )


def _check_file(name: str, paths: LocalPaths, file: Path | None) -> None:
    """Raise Conflict if the local run was started from another file."""
    runs = read_settings(paths).config
    if file is not None and runs and Path(runs).resolve() != file.resolve():
        raise Conflict(
            f"the local run of cluster {name} was started from {runs}, not from {file}; use --config {runs}, or stop "
            f"it with `iris --config {runs} cluster stop` and start the other"
        )


def _read(path: Path) -> Mapping[str, Any]:
    """Read a cluster file; return an empty mapping if the file is not a mapping."""
    import yaml

    with yaml_errors(f"the cluster config {path}"):
        content = yaml.safe_load(path.read_text())
    return content if isinstance(content, dict) else {}


def peek(token_file: str | None) -> str:
    """Return the token in a file; empty if the file does not exist yet."""
    with contextlib.suppress(MarinError):
        return read_token_file(token_file) if token_file else ""
    return ""
