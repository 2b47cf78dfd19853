"""Prepares a cluster file for a local run: checks it, plans its hosts, and converts it to iris's form."""

from dataclasses import dataclass
from pathlib import Path

from iris.autoscale.rules import AutoscaleRules
from iris.controller.config.cluster_file import read_cluster_config, read_translated
from iris.controller.config.schema import file_schema
from iris.local.fleet.slices import FleetPlan, plan_fleet
from iris.local.settings import LocalSettings, write_settings
from iris.local.state import LocalPaths
from rigging.errors import InvalidRequest
from rigging.text.yaml_files import dump_yaml

__all__ = ["ImportedFile", "file_schema", "has_slices", "ignored_rules", "import_file", "prepare_run"]


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A cluster file in iris's form.

    Args:
        text: YAML.
        groups: The number of scale groups.
        left_out: The skipped keys: file, line and key, and the reason.
    """

    text: str
    groups: int
    left_out: tuple[str, ...]


def has_slices(path: Path) -> bool:
    """Return whether a cluster file has scale groups, and thus slices in a local run. Raises InvalidRequest."""
    return bool(read_cluster_config(path).scale_groups)


def ignored_rules(path: Path) -> bool:
    """Return whether a cluster file has settings of the autoscaler, which local runs ignore. Raises InvalidRequest."""
    return read_cluster_config(path).autoscale != AutoscaleRules()


def prepare_run(
    paths: LocalPaths, file: Path, max_hosts: int, remote_state_dir: str = "", durability: str = ""
) -> FleetPlan:
    """Check a cluster file and store it as the file of a local cluster; return the planned hosts.

    Args:
        paths: The files of the local cluster.
        file: The cluster file.
        max_hosts: Maximum number of running hosts.
        remote_state_dir: The remote state of the local run. The file's own remote state belongs to the real cluster and
            is not used.
        durability: "local" or "remote"; empty for "local".

    Raises:
        InvalidRequest: The file is invalid, or none of its slices can run here.
    """
    config = read_cluster_config(file)
    if config.address:
        raise InvalidRequest(
            f"{file}: controller.address is {config.address!r}, so its name means the cluster there; to run the file "
            "here, take a copy without it"
        )
    if durability == "remote" and not remote_state_dir:
        raise InvalidRequest(
            "durability is 'remote', but there is no --remote-state-dir: that of the file is not used here"
        )
    plan = plan_fleet(config.scale_groups, max_hosts)
    if not plan.groups:
        why = "; ".join(f"{name}: {reason}" for name, reason in plan.left_out) or "it has no scale_groups"
        raise InvalidRequest(f"no slice of {file} can run here: {why}")
    LocalPaths(paths.root.parent).make()
    paths.make()
    write_settings(paths, LocalSettings(str(file), remote_state_dir, durability, max_hosts))
    return plan


def import_file(path: Path) -> ImportedFile:
    """Convert a cluster file to iris's form. Raises InvalidRequest."""
    config, found = read_translated(path)
    return ImportedFile(dump_yaml(found.document.content), len(config.scale_groups), tuple(map(str, found.left_out)))
