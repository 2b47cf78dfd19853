"""The `ray` command for each operation. Pure, so that --dry-run can print it."""

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marin.run.cluster_target import DASHBOARD_PORT
from rigging.errors import InvalidRequest
from rigging.text.quantities import check_count

AUTOSCALER: Final = ("RAY_UP_enable_autoscaler_v2", "0")
"""v2, the default of `ray up`, counts the head among the workers and launches slices again and again."""

READ_TOKEN: Final = 'cat "${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}"'
CONFIG_FILE: Final = "~/ray_bootstrap_config.yaml"
_UNPACKED: Final = "/tmp/ray/session_latest/runtime_resources/working_dir_files"


@dataclass(frozen=True, slots=True)
class RayCommand:
    """A call of the `ray` program.

    Args:
        words: The arguments of `ray`.
        variables: Extra environment variables.
    """

    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        before = [f"{name}={shlex.quote(value)}" for name, value in self.variables]
        return " ".join([*before, shlex.join(("ray", *self.words))])


def shown_file(file: Path, here: Path) -> str:
    """Return a path as people write it: relative if it is below the current directory."""
    return os.path.relpath(file, here) if file.is_relative_to(here) else str(file)


def up(file: str, *, keep_running: bool = False) -> RayCommand:
    """Return the command that starts a cluster or, with `keep_running`, applies a changed file to a running one."""
    return RayCommand(("up", "-y", *(["--no-restart"] if keep_running else []), file), (AUTOSCALER,))


def down(file: str, *, workers_only: bool = False) -> RayCommand:
    """Return the command that removes a cluster."""
    return RayCommand(("down", "-y", *(["--workers-only"] if workers_only else []), file))


def attach(file: str) -> RayCommand:
    """Return the command that opens a shell on the head."""
    return RayCommand(("attach", file))


def execute(file: str, command: str) -> RayCommand:
    """Return the `ray exec` that runs a command on the head."""
    return RayCommand(("exec", file, command))


def monitor(file: str, lines: int) -> RayCommand:
    """Return the command that follows the autoscaler's log."""
    return RayCommand(("monitor", "--lines", str(check_count(lines, "--lines")), file))


def dashboard(file: str, port: int) -> RayCommand:
    """Return the command that opens a tunnel to the dashboard."""
    return RayCommand(("dashboard", "--port", str(port), "--remote-port", str(DASHBOARD_PORT), file))


def fetch_unpacked(file: str, package: str, folder: str) -> RayCommand:
    """Return the command that copies an unpacked working directory from the head.

    Args:
        file: The cluster's file.
        package: The name of the working directory's package.
        folder: The destination folder.
    """
    return RayCommand(("rsync-down", file, f"{_UNPACKED}/{package.removesuffix('.zip')}/", folder))


def parse_counts(words: tuple[str, ...], types: Mapping[str, Mapping[str, float]]) -> dict[str, int]:
    """Parse TYPE=COUNT of `add-worker`. A missing count is 1. Raise InvalidRequest that names the types."""
    counts = {}
    for word in words:
        name, separator, text = word.partition("=")
        if name not in types:
            raise InvalidRequest(
                f"{word!r}: the cluster has no worker type {name!r}; it has {', '.join(sorted(types))}"
            )
        if separator and not text.isdigit():
            raise InvalidRequest(f"{word!r}: write a number of slices, e.g. {name}=4")
        counts[name] = int(text) if separator else 1
    return counts


def request_workers(file: str, counts: Mapping[str, int], types: Mapping[str, Mapping[str, float]]) -> RayCommand:
    """Return the command that makes the autoscaler keep workers, with or without work. It replaces earlier requests.

    Args:
        file: The cluster's file.
        counts: The number of workers of each type.
        types: The worker types in the cluster's file.

    Raises:
        InvalidRequest: A type has no resource that distinguishes it from the others, so it cannot be requested.
    """
    bundles: list[dict[str, float]] = []
    for name, count in counts.items():
        # Of a slice of several hosts only the first has this: one of it is one slice.
        own = next((key for key in types[name] if key.endswith("-head")), None)
        if own is None or sum(own in resources for resources in types.values()) > 1:
            raise InvalidRequest(
                f"{name}: no resource is unique to this type; raise its min_workers and `update` instead"
            )
        bundles += [{own: 1}] * count
    code = f"import ray.autoscaler.sdk as sdk; sdk.request_resources(bundles={json.dumps(bundles)})"
    script = f"import ray; ray.init(address='auto', logging_level=40); {code}"
    return execute(file, f"python -c {shlex.quote(script)}")
