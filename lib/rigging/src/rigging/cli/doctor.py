"""The checks of `marin doctor` and `iris doctor`: facts about this machine, with a verdict and a remedy for each.

The functions that judge are pure; `gather` collects the facts. They contact only the storage and the cluster in the
user's settings.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Final

from rigging.cli.output import Output
from rigging.exit_codes import FAILURE, OK
from rigging.process.control_groups import CGROUP_ROOT, OWN_CGROUPS, cgroup_limits
from rigging.text.quantities import format_size

LIBRARIES: Final = ("marin", "marin-fray", "marin-iris", "marin-rigging")
_ANSWERS_WITHIN_S: Final = 10.0
_LITTLE_DISK: Final = 5 << 30
_HARDLY_ANY_DISK: Final = 500 << 20
_LITTLE_MEMORY: Final = 1 << 30
_SKEW_MS: Final = 2000


class State(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warn"
    FAILURE = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a check.

    Args:
        subject: The subject of the check, e.g. "git".
        state: The result.
        text: The result in words.
        remedy: How to fix it; empty if nothing needs fixing.
    """

    subject: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The facts that `gather` collected.

    Args:
        python: The version of this interpreter.
        programs: The version that each program prints; None if it is missing or does not run.
        versions: The versions of the installed libraries.
        disks: Free bytes of the relevant folders, by purpose.
        cpu_millis: The CPU limit of the control groups; None for no limit.
        memory_bytes: The memory limit of the control groups; None for no limit.
        unified_groups: Whether this machine uses control groups version 2.
        loopback: The error of opening a loopback port; empty if it worked.
        uv_off_path: The path of uv outside PATH; empty if PATH leads to uv.
    """

    python: tuple[int, int, int]
    programs: Mapping[str, str | None]
    versions: Mapping[str, str]
    disks: Mapping[str, tuple[str, int]]
    cpu_millis: int | None
    memory_bytes: int | None
    unified_groups: bool
    loopback: str
    uv_off_path: str = ""


def gather(disks: Mapping[str, str], uv: str = "uv") -> MachineFacts:
    """Collect facts about this machine.

    Args:
        disks: The folders whose free space matters, by purpose. For a missing folder its nearest existing parent is
            checked.
        uv: The path of the uv program.
    """
    cpu, memory = cgroup_limits(CGROUP_ROOT, _text(OWN_CGROUPS))
    return MachineFacts(
        sys.version_info[:3],
        {"uv": _version([uv, "--version"]), "git": _version(["git", "--version"])},
        {name: version for name in LIBRARIES if (version := _installed(name))},
        {what: (folder, shutil.disk_usage(_existing(folder)).free) for what, folder in disks.items()},
        cpu,
        memory,
        (CGROUP_ROOT / "cgroup.controllers").exists(),
        _loopback(),
        "" if shutil.which("uv") else uv,
    )


def judge(facts: MachineFacts) -> list[Finding]:
    """Return the findings about a machine."""
    version = ".".join(map(str, facts.python))
    found = [
        Finding("python", State.OK, version)
        if facts.python >= (3, 11)
        else Finding("python", State.FAILURE, f"{version}; 3.11 or newer is needed", "uv python install 3.12")
    ]
    found += [_program(name, told, facts.uv_off_path) for name, told in facts.programs.items()]
    found.append(_versions(facts.versions))
    found += [_disk(what, *seen) for what, seen in facts.disks.items()]
    found.append(_limits(facts))
    found.append(
        Finding("ports", State.FAILURE, facts.loopback, "allow this user to listen on 127.0.0.1")
        if facts.loopback
        else Finding("ports", State.OK, "ports of 127.0.0.1 are usable")
    )
    return found


def judge_clock(skew_ms: int, whose: str) -> Finding:
    """Return the finding about the difference between this clock and another."""
    text = f"{abs(skew_ms) / 1000:.1f} s {'behind' if skew_ms > 0 else 'ahead of'} {whose}"
    if abs(skew_ms) < _SKEW_MS:
        return Finding("clock", State.OK, text)
    return Finding("clock", State.WARNING, text, "set it: timedatectl set-ntp true (leases and logs go by the clock)")


def show(findings: Sequence[Finding], as_json: bool) -> int:
    """Print findings and return the exit code: FAILURE if one of them is a failure."""
    rows = [[finding.state, finding.subject, finding.text] for finding in findings]
    notes = [f"-> {finding.remedy}" if finding.remedy else "" for finding in findings]
    Output(as_json).rows(("state", "check", "found"), rows, [asdict(finding) for finding in findings], notes)
    return FAILURE if any(finding.state is State.FAILURE for finding in findings) else OK


def _program(name: str, told: str | None, uv_off_path: str) -> Finding:
    remedy = {"uv": "pip install uv", "git": "install git (apt-get install git)"}[name]
    if told is not None and name == "uv" and uv_off_path:
        text = f"{told} at {uv_off_path}, which is not on PATH"
        return Finding(name, State.WARNING, text, f'export PATH="{os.path.dirname(uv_off_path)}:$PATH", for uv run')
    if told is not None:
        return Finding(name, State.OK, told)
    # uv comes with iris; without git a project's files are told by the usual litter's names.
    return Finding(name, State.FAILURE if name == "uv" else State.WARNING, "not found", remedy)


def _versions(versions: Mapping[str, str]) -> Finding:
    text = (
        ", ".join(f"{name} {version}" for name, version in versions.items()) or "none of marin's libraries is installed"
    )
    if len(set(versions.values())) == 1:
        return Finding("versions", State.OK, text)
    return Finding("versions", State.FAILURE, f"{text}: they must be equal", "uv sync, or install all of one release")


def _disk(what: str, folder: str, free: int) -> Finding:
    text = f"{format_size(free)} free at {folder}"
    if free < _HARDLY_ANY_DISK:
        return Finding(what, State.FAILURE, text, "free space there, or choose another place")
    return Finding(what, State.OK if free >= _LITTLE_DISK else State.WARNING, text)


def _limits(facts: MachineFacts) -> Finding:
    cpu = "all cpus" if facts.cpu_millis is None else f"{facts.cpu_millis / 1000:g} cpus"
    memory = "all memory" if facts.memory_bytes is None else format_size(facts.memory_bytes)
    text = f"control groups allow {cpu}, {memory}"
    if facts.memory_bytes is not None and facts.memory_bytes < _LITTLE_MEMORY:
        return Finding("limits", State.WARNING, text, "give this container or service more memory")
    if not facts.unified_groups:
        return Finding(
            "limits", State.WARNING, f"{text}; no version 2: limits of tasks are soft", "boot with cgroup version 2"
        )
    return Finding("limits", State.OK, text)


def _version(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _installed(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _existing(folder: str) -> str:
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return folder


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _loopback() -> str:
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
    except OSError as error:
        return f"cannot open a port of 127.0.0.1: {error}"
    return ""
