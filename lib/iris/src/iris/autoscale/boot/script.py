"""Returns the startup script of a slice's hosts. Pure but for the shell text, which is beside this file."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import quote, urlsplit

from iris.autoscale.model import SLICE_ATTRIBUTE
from iris.autoscale.port import SliceOrder
from iris.autoscale.rules import Platform
from iris.domain.scale_groups import ScaleGroup
from rigging.errors import InvalidRequest
from rigging.text.printable import is_printable_line

TASK_VARIABLES: Final = "IRIS_TASK_VARIABLES"
"""The worker's variable with the variables of its tasks, as JSON."""

_TASK_USERS: Final = "2000000000-2000000999"
_WORK_DIR: Final = "/var/lib/iris-worker"
_MOST_BYTES: Final = 256 * 1024
_OF_SLICES: Final = ("tpu-name", "pool", "tpu-worker-id", SLICE_ATTRIBUTE)


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """A release where machines fetch it.

    Args:
        name: Its name.
        url: Its folder.
        python: The Python version: "3.12".
        wheels: The names of its wheels.
    """

    name: str
    url: str
    python: str
    wheels: tuple[str, ...]


def check_reachable(state_url: str) -> None:
    """Raise InvalidRequest if machines at Google cannot fetch from a state directory with their own account."""
    if not state_url.startswith("gs://"):
        raise InvalidRequest(
            f"storage.remote_state_dir is {state_url or 'not given'!r}: machines at Google fetch iris from it; "
            "give a bucket that they can read: gs://BUCKET/FOLDER"
        )


def worker_script(
    order: SliceOrder, release: StoredRelease, controller: str, platform: Platform, *, insecure: bool = False
) -> str:
    """Return the script that installs and starts the worker on each host of a slice, at each boot.

    Args:
        order: The slice.
        release: What to install.
        controller: "host:port".
        platform: Settings of workers.
        insecure: The controller serves without TLS.

    Raises:
        InvalidRequest: A variable has a line break, or the script is too long for Google.
    """
    group = order.group
    options = ["--controller", controller, "--platform", "gce", "--slice", order.name, *offer_options(group)]
    words = {"join_token": order.join_token, "task_users": _TASK_USERS, "work": platform.cache_dir or _WORK_DIR}
    lists = {"options": [*options, *(["--insecure"] if insecure else [])]}
    script = (
        install_script(release, worker_environment(platform, group)) + _assigned(words, lists) + _shell("worker.sh")
    )
    if len(script.encode()) > _MOST_BYTES:
        raise InvalidRequest(
            f"{group}: its startup script has {len(script.encode()):,} bytes and Google takes {_MOST_BYTES:,}: "
            "give fewer or shorter variables (worker.env, defaults.worker.env, defaults.task_env)"
        )
    return script


def offer_options(group: ScaleGroup) -> list[str]:
    """Return the options of `iris worker start` for the resources and attributes of a group's hosts."""
    host, device = group.host, group.host.accelerator
    options: list[str] = []
    if device is not None and device.kind == "tpu":
        options += ["--tpu", device.variant]
    elif device is not None:
        options += ["--gpu", f"{device.variant}:{device.count}"]
    # What is offered is what the group says, so that a request for which a slice is made fits on it.
    for option, amount in (("cpu", host.cpu_millis / 1000), ("memory", host.memory_bytes), ("disk", host.disk_bytes)):
        options += [f"--{option}", f"{amount:.15g}"] if amount else []
    for key, value in group.host_attributes.items():
        options += ["--attributes", f"{key}={value}"] if key not in _OF_SLICES else []
    return options


def worker_environment(platform: Platform, group: ScaleGroup) -> dict[str, str]:
    """Return the variables of a group's workers."""
    environment = dict(platform.environment) | dict(group.environment)
    if platform.task_environment:
        environment[TASK_VARIABLES] = json.dumps(dict(platform.task_environment))
    return environment


def install_script(release: StoredRelease, environment: Mapping[str, str]) -> str:
    """Return the beginning of a startup script: it installs a release, whose program is then `$iris`.

    Args:
        release: What to install.
        environment: Variables for the installation and the services.

    Raises:
        InvalidRequest: A variable has a line break.
    """
    for name, value in environment.items():
        if value and not is_printable_line(value):
            raise InvalidRequest(f"the variable {name} has a line break or another control character; leave it out")
    place = urlsplit(release.url)
    words = {
        "release": release.name,
        "python": release.python,
        "bucket": place.netloc,
        "folder": quote(place.path.strip("/"), safe=""),
        # In the quoting of both sh and systemd.
        "environment": "".join(f"{name}={_quoted(value)}\n" for name, value in environment.items()),
    }
    return "#!/bin/bash\n" + _assigned(words, {"wheels": release.wheels}) + _shell("install.sh")


def _assigned(words: Mapping[str, str], lists: Mapping[str, list[str] | tuple[str, ...]]) -> str:
    lines = [f"{name}={shlex.quote(value)}" for name, value in words.items()]
    lines += [f"{name}=({shlex.join(values)})" for name, values in lists.items()]
    return "".join(f"{line}\n" for line in lines)


def _quoted(value: str) -> str:
    escaped = value
    for letter in '\\"$`':
        escaped = escaped.replace(letter, f"\\{letter}")
    return f'"{escaped}"'


@cache
def _shell(name: str) -> str:
    return (files("iris.autoscale.boot") / name).read_text()
