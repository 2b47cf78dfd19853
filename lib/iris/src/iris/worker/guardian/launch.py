"""Starts or finds a guardian. Imports little, because it runs before a worker's other imports."""

import contextlib
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from iris.worker.isolation.plan import IsolationMode
from iris.worker.limits.plan import LimitsMode

DEFAULT_LINGER_S: Final = 600.0
"""How long a guardian without a worker or tasks waits for a worker before it exits."""

_LOG_LIMIT_BYTES: Final = 1024 * 1024
_KEPT: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "VIRTUAL_ENV", "LD_LIBRARY_PATH"})
_KEPT_PREFIXES: Final = ("COVERAGE_", "LC_", "PYTHON")


@dataclass(frozen=True, slots=True)
class GuardianPaths:
    """The files of a guardian in the work directory `root`."""

    root: Path

    @property
    def socket(self) -> Path:
        """The socket on which the guardian listens."""
        return self.root / "guardian.sock"

    @property
    def lock(self) -> Path:
        """The lock file: locked while the guardian is alive, contains its pid."""
        return self.root / "guardian.lock"

    @property
    def log(self) -> Path:
        return self.root / "guardian.log"

    @contextlib.contextmanager
    def short_name(self) -> Iterator[str]:
        """Yield a name for the socket of at most 107 bytes, the system's limit, which its path may exceed."""
        directory = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/{self.socket.name}"
        finally:
            os.close(directory)


def launch(
    paths: GuardianPaths,
    prefix: tuple[str, ...] = (),
    linger_s: float = DEFAULT_LINGER_S,
    isolation: IsolationMode = IsolationMode.OVERLAY,
    limits: LimitsMode = LimitsMode.AUTO,
    max_processes: int = 0,
) -> "subprocess.Popen[bytes]":
    """Start a guardian if there is none. The returned process ends when the guardian listens (0) or fails (nonzero).

    Args:
        paths: The files of the guardian.
        prefix: Words to put before the guardian's command line.
        linger_s: How long a guardian without a worker or tasks waits for a worker, in seconds.
        isolation: The strongest isolation between tasks to try.
        limits: How to enforce limits.
        max_processes: Maximum number of processes per task; 0 for most of the host's maximum.
    """
    with _open_log(paths.log) as log:
        return subprocess.Popen(
            [
                *prefix,
                *(sys.executable, "-m", "iris.worker.guardian"),
                *("--work-dir", str(paths.root), "--linger", str(linger_s), "--isolation", isolation),
                *("--limits", limits, "--max-processes", str(max_processes)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=guardian_environment(os.environ),
        )


def guardian_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the guardian's environment variables, without secrets, because tasks can read them."""
    return {name: value for name, value in environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}


def build_of(folder: Path) -> str:
    """Return an identifier of the guardian's code; each release and each edit changes it."""
    checksum = 0
    for path in (
        *sorted(folder.glob("*.py")),
        *sorted(folder.parent.glob("limits/*.py")),
        *sorted(folder.parent.glob("users/*.py")),
    ):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return f"{checksum:08x}"


def _open_log(path: Path) -> IO[bytes]:
    if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
        os.replace(path, path.with_name(path.name + ".old"))
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")
