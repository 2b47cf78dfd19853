"""Finds the container engine of a host, and writes its command lines."""

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.worker.limits.plan import NO_LIMITS, LimitRequest
from iris.worker.paths import short_name
from rigging.errors import InvalidRequest

AUTO: Final = "auto"
OFF: Final = "off"
_KINDS: Final = ("podman", "docker")
_INIT: Final = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit")
_DOCKER_SOCKET: Final = "/var/run/docker.sock"
_MIN_DOCKER_MEMORY: Final = 6 * 1024**2
_DIVIDERS: Final = ',:"'
"""Characters that end a path in the engines' options."""
_LABEL: Final = "iris.work-dir"
_SHARES_PER_CORE: Final = 1024


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory or file of the host, at the same path in the container.

    Args:
        path: Its absolute path.
        source: Its path on the host, if different.
        is_writable: Whether the attempt may change it.
        is_layered: Whether the attempt's changes go to a layer of its own, where the engine has layers; else it is
            read-only.
    """

    path: str
    source: str = ""
    is_writable: bool = False
    is_layered: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """One attempt's container.

    Args:
        name: Its name, unique on the host.
        image: Its image.
        cwd: The directory of its command.
        env_file: The file with its variables.
        binds: What it sees of the host.
        devices: Devices of the host, as paths or as names of the Container Device Interface.
        uid: Its user; 0 for root.
        limits: Its limits.
    """

    name: str
    image: str
    cwd: str
    env_file: str
    binds: tuple[Bind, ...] = ()
    devices: tuple[str, ...] = ()
    uid: int = 0
    limits: LimitRequest = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine.

    Args:
        kind: "podman" or "docker".
        words: Its program, with options for all commands.
    """

    kind: str
    words: tuple[str, ...]

    def run(self, container: Container, work_dir: str, ulimits: Sequence[str], argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command line that runs `argv` in a container and ends with its exit code.

        Args:
            container: The container.
            work_dir: The worker's directory, by which its containers are found.
            ulimits: Limits of the processes, e.g. "nofile=1024:4096".
            argv: The command.
        """
        return (
            *(*self.words, "run", "--rm", "--init", "--pull=missing", "--network=host", "--log-driver=none"),
            *("--name", container.name, "--label", f"{_LABEL}={work_dir}", "--workdir", container.cwd),
            *("--env-file", container.env_file, "--entrypoint", ""),
            *(word for limit in ulimits for word in ("--ulimit", limit)),
            *_identity_words(container.uid),
            *_limit_words(container.limits),
            *(word for bind in container.binds for word in ("--volume", self._volume(bind))),
            *(word for device in container.devices for word in ("--device", device)),
            container.image,
            *argv,
        )

    def remove(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the command line that ends and removes containers, whether or not they exist."""
        ignore = ("--ignore",) if self.kind == "podman" else ()
        return (*self.words, "rm", "--force", *ignore, *names)

    def inside(self, name: str) -> tuple[str, ...]:
        """Return the words that run the command after them in a container, with its user, variables and directory."""
        return (*self.words, "exec", name)

    def exec(self, name: str, is_terminal: bool, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words that run the command after them in a container, with streams.

        Args:
            name: The container.
            is_terminal: Whether the streams are a terminal.
            env: Variables in addition to the container's.
        """
        variables = (word for key, value in env.items() for word in ("--env", f"{key}={value}"))
        return (*self.words, "exec", "--interactive", *(("--tty",) if is_terminal else ()), *variables, name)

    def list_all(self, work_dir: str) -> tuple[str, ...]:
        """Return the command line that prints the names of a worker's containers, one a line."""
        return (*self.words, "ps", "--all", "--filter", f"label={_LABEL}={work_dir}", "--format", "{{.Names}}")

    def _volume(self, bind: Bind) -> str:
        if bind.is_layered:
            mode = "O" if self.kind == "podman" else "ro"
        else:
            mode = "rw" if bind.is_writable else "ro"
        return f"{bind.source or bind.path}:{bind.path}:{mode}"


def container_name(work_dir: Path, attempt_id: str) -> str:
    """Return the name of an attempt's container, unique on the host."""
    return f"iris-{short_name(str(work_dir))}-{short_name(attempt_id)}"


def _identity_words(uid: int) -> tuple[str, ...]:
    # Named also for root, because a user of the image's could not write to the attempt's directories.
    words = ("--user", f"{uid}:{uid}")
    # Else a setuid program of the image is root, who may read and write whatever is mounted.
    return (*words, "--security-opt", "no-new-privileges") if uid else words


def _limit_words(limits: LimitRequest) -> list[str]:
    words = []
    if limits.memory_bytes:
        memory = max(limits.memory_bytes, _MIN_DOCKER_MEMORY)
        words += ["--memory", f"{memory}b", "--memory-swap", f"{memory}b"]
    if limits.processes:
        words += ["--pids-limit", str(limits.processes)]
    if limits.cpu_millis:
        words += ["--cpu-shares", str(max(limits.cpu_millis * _SHARES_PER_CORE // 1000, 2))]
        if limits.cpu_quota:
            words += ["--cpus", f"{limits.cpu_millis / 1000:g}"]
    return words


def find_engine(choice: str, work_dir: str, which: Callable[[str], str | None] = shutil.which) -> Engine | None:
    """Return the engine of this host; None if there is none.

    Args:
        choice: "auto" for podman or docker if they can be used, "off" for none, or a command, e.g. "podman --runtime
            runc".
        work_dir: The worker's directory.
        which: Finds a program.

    Raises:
        InvalidRequest: The command of `choice` is neither podman nor docker, or cannot be used.
    """
    if choice == OFF:
        return None
    if choice == AUTO:
        found = [Engine(kind, (path,)) for kind in _KINDS if (path := which(kind)) and not _lack(kind, work_dir, which)]
        return found[0] if found else None
    words = shlex.split(choice)
    kind = os.path.basename(words[0]) if words else ""
    if kind not in _KINDS:
        raise InvalidRequest(f"containers is {choice!r}; write auto, off, or a command: podman or docker with options")
    program = which(words[0])
    if program is None:
        raise InvalidRequest(f"containers is {choice!r}, but there is no program {words[0]!r} on this host")
    if lack := _lack(kind, work_dir, which):
        raise InvalidRequest(f"containers is {choice!r}, but {lack}")
    return Engine(kind, (program, *words[1:]))


def _lack(kind: str, work_dir: str, which: Callable[[str], str | None]) -> str:
    if kind == "podman" and not (which("catatonit") or any(map(os.path.exists, _INIT))):
        return "podman --init needs the program catatonit: install it"
    if kind == "docker" and not Path(os.environ.get("DOCKER_HOST", _DOCKER_SOCKET).removeprefix("unix://")).exists():
        return f"the docker daemon does not listen at {_DOCKER_SOCKET}"
    if any(character in work_dir for character in _DIVIDERS):
        return f"{kind} mounts no directory with a comma, colon or quote in its path: use another than {work_dir}"
    return ""
