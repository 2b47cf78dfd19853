"""Writes and installs systemd units that run a controller or a worker on this host."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from iris.tls.trust import is_loopback
from iris.worker.connection.credential import FILE_NAME as CREDENTIAL_FILE
from iris.worker.limits.service_group import LEAF
from iris.worker.users.host import check_host
from iris.worker.users.uids import parse_uid_range
from rigging.errors import Conflict, InvalidRequest

TASK_USERS: Final = "2000000000-2000000999"
"""Default range of uids for tasks, which neither distributions nor containers use."""

_SYSTEM_DIR: Final = Path("/etc/systemd/system")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STOP_S: Final = 60
_SEPARATORS: Final = ("$", "%")
_UNIFIED: Final = Path("/sys/fs/cgroup/cgroup.controllers")
_HAS_SUBGROUPS: Final = 254


class Delegation(StrEnum):
    """How a service gets a control group to divide among its tasks.

    NONE: not at all. OWN: with version 1, in each tree. LEAF: with version 2, the service moves itself into a child of
    its group (systemd before 254). SUBGROUP: with version 2, systemd starts the service in a child group.
    """

    NONE = "none"
    OWN = "own"
    LEAF = "leaf"
    SUBGROUP = "subgroup"


def task_users_of(given: str | None, controller: str, work_dir: Path | None, *, as_user: bool) -> str | None:
    """Return the uid range for tasks of a worker's service; None to run them as the service's user.

    Args:
        given: A range, "off", or None for the default: `USUAL_TASK_USERS` for a new host of a cluster beyond loopback,
            else none.
        controller: "host:port".
        work_dir: The worker's directory; None if unknown.
        as_user: Whether the service belongs to a user's own systemd.

    Raises:
        InvalidRequest: The range is invalid, or this host does not support the default range.
    """
    if given is not None:
        return None if given == "off" else str(parse_uid_range(given))
    if as_user or work_dir is None or is_loopback(controller) or (work_dir / CREDENTIAL_FILE).exists():
        return None
    if os.geteuid() == 0:  # who is not root can only print the unit of another host
        try:
            check_host(parse_uid_range(TASK_USERS), work_dir)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{error}. Or `--task-users off`: then tasks run as root, and can read each other's files and the "
                "worker's credential"
            ) from None
    return TASK_USERS


def delegation_of(systemd_version: int, *, is_unified: bool) -> Delegation:
    """Return how a worker's service gets its control group on a host.

    Args:
        systemd_version: The version of the host's systemd; 0 if unknown, which counts as old.
        is_unified: Whether the host has control groups of version 2 only.
    """
    if systemd_version >= _HAS_SUBGROUPS:
        return Delegation.SUBGROUP
    return Delegation.LEAF if is_unified else Delegation.OWN


def host_delegation() -> Delegation:
    """Return how a worker's service gets its control group on this host."""
    return delegation_of(systemd_version(), is_unified=_UNIFIED.exists())


def systemd_version() -> int:
    """Return the version of this host's systemd; 0 if there is none or its version is unknown."""
    program = shutil.which("systemctl")
    if program is None:
        return 0
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.match(r"systemd ([0-9]+)", done.stdout)
    return int(found[1]) if found else 0


def unit_text(
    description: str,
    argv: Sequence[str],
    *,
    as_user: bool,
    leaves_tasks: bool,
    delegation: Delegation = Delegation.NONE,
) -> str:
    """Return a unit that runs a command while the machine is up and restarts the command when it exits.

    Args:
        description: One readable line.
        argv: The command, with the absolute path of its program. It must not contain secrets, because all users can
            read units.
        as_user: Whether the unit belongs to a user's own systemd.
        leaves_tasks: Whether processes of the command survive its failure: systemd signals only the command, which ends
            its tasks itself when it is stopped. With LEAF systemd ends all processes with the command, because it
            cannot restart a service while child groups have controllers.
        delegation: How the service gets a control group to divide.
    """
    kill = "KillMode=process" if leaves_tasks and delegation is not Delegation.LEAF else "KillMode=mixed"
    if delegation is not Delegation.NONE:
        kill += "\nDelegate=yes"
    if delegation is Delegation.SUBGROUP:
        kill += f"\nDelegateSubgroup={LEAF}"
    command = " ".join(map(_quoted, argv))
    return f"""[Unit]
Description={description}
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={command}
Restart=always
RestartSec=5
{kill}
TimeoutStopSec={_STOP_S}
LimitNOFILE=65536
NoNewPrivileges=no

[Install]
WantedBy={"default.target" if as_user else "multi-user.target"}
"""


def iris_command(*words: str) -> list[str]:
    """Return the command line of this installation of iris, with an absolute path."""
    beside = Path(sys.executable).with_name("iris")
    return [str(beside), *words] if beside.exists() else [sys.executable, "-m", "iris.cli.main", *words]


def unit_path(name: str, *, as_user: bool, environ: Mapping[str, str]) -> Path:
    """Return the path of the unit NAME.service.

    Args:
        name: The unit's name.
        as_user: Whether the unit belongs to a user's own systemd.
        environ: The environment variables, for the user's configuration directory.

    Raises:
        InvalidRequest: The name is not a valid unit name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"the service name {name!r} must be letters, digits and _ . -, at most 64")
    if not as_user:
        return _SYSTEM_DIR / f"{name}.service"
    base = environ.get("XDG_CONFIG_HOME", "")
    config = Path(base if os.path.isabs(base) else os.path.expanduser("~/.config"))
    return config / "systemd" / "user" / f"{name}.service"


def install_unit(place: Path, text: str) -> str:
    """Write a unit unless a different one exists; return systemd's warnings, empty if none or without systemd.

    Args:
        place: The unit's file.
        text: Its content.

    Raises:
        Conflict: A file with other content exists.
        InvalidRequest: The file cannot be written.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and place.read_text() != text:
            raise Conflict(f"{place} exists with other content: remove it, or give another --service-name")
        place.write_text(text)
    except OSError as error:
        if isinstance(error, Conflict):
            raise
        raise InvalidRequest(f"cannot write {place}: {error.strerror}; --user writes it for your own systemd") from None
    return verify_unit(place)


def verify_unit(place: Path) -> str:
    """Return the warnings of `systemd-analyze verify` for a unit; empty if there are none or the program is missing."""
    program = shutil.which("systemd-analyze")
    if program is None:
        return ""
    user = ["--user"] if "user" in place.parts else []
    done = subprocess.run(
        [program, *user, "verify", "--man=no", str(place)], capture_output=True, text=True, check=False, timeout=60
    )
    own = [line for line in (done.stderr + done.stdout).splitlines() if place.name in line]
    return "; ".join(own)


def start_hint(place: Path, *, as_user: bool) -> str:
    """Return the commands that start an installed unit now and at each boot."""
    scope = " --user" if as_user else ""
    return f"systemctl{scope} daemon-reload && systemctl{scope} enable --now {place.stem}"


def _quoted(word: str) -> str:
    """Return a word of ExecStart in systemd's quoting."""
    if "\n" in word or "\r" in word:
        raise InvalidRequest(f"{word!r} has a line break, which a unit cannot contain")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    for separator in _SEPARATORS:
        escaped = escaped.replace(separator, separator * 2)
    return f'"{escaped}"' if escaped != word or re.search(r"[\s';]", word) or not word else word
