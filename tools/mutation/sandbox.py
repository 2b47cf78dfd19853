"""A copy of the repository in which wrong code may run.

Code with a mistake may kill processes, delete files or call a cluster. So it runs in separate namespaces (Linux,
`unshare`): it sees only its own processes and loopback, and can write only to the copy.
"""

import functools
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SOURCES: Final = ("lib/rigging/src", "lib/fray/src", "lib/iris/src", "lib/marin/src", "tests/support/src")
# Everything is made read-only but the copy; remounting by `bind` changes this namespace's view only.
_PRELUDE: Final = """
mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,ro,bind / && cd "$0/tree" || exit 96
ip link set lo up 2>/dev/null
mount -t overlay overlay -o lowerdir="$CACHE",upperdir="$0/cache",workdir="$0/cache-work" "$CACHE" 2>/dev/null
exec env --default-signal "$@"
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit status of a command (None after a timeout), and the end of its output."""

    status: int | None
    output: str


@functools.cache
def _uv_cache() -> str:
    """Return the directory of uv's cache. Commands may read it; their writes go to an overlay."""
    found = subprocess.run(["uv", "cache", "dir"], check=False, capture_output=True, text=True)
    return found.stdout.strip() or str(Path.home() / ".cache/uv")


class Sandbox:
    """One copy of the repository. Commands run in it one after another.

    Args:
        place: The directory of the copy, created if missing, and updated from `root`.
    """

    def __init__(self, root: Path, place: Path) -> None:
        self.root = root
        self.place = place
        self.tree = place / "tree"
        self._stamp = 1_000_000_000

    def prepare(self) -> None:
        """Update the copy."""
        self.tree.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=self.root, check=True, capture_output=True,
        ).stdout.decode()  # fmt: skip
        names = {name for name in listed.split("\0") if name and (self.root / name).is_file()}
        for path in [path for path in self.tree.rglob("*") if path.is_file()]:
            name = str(path.relative_to(self.tree))
            if name not in names and "__pycache__" not in name and not name.startswith(".venv/"):
                path.unlink()
        for name in sorted(names):
            source, target = self.root / name, self.tree / name
            if not target.is_file() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        self._make_environment()

    def _make_environment(self) -> None:
        """Create a virtual environment in which the copy's packages take precedence over installed ones in every
        process."""
        home = self.tree / ".venv"
        if not home.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        paths = [str(self.tree / name) for name in _SOURCES] + [sysconfig.get_path("purelib")]
        lines = [
            *paths,
            "import os; os.environ.get('COVERAGE_PROCESS_START') and __import__('coverage').process_startup()",
        ]
        (home / "lib" / version / "site-packages" / "copy.pth").write_text("\n".join(lines) + "\n")

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the copy so that Python ignores its old compiled form."""
        target = self.tree / name
        target.write_bytes(content)
        # Compiled code is known by the time of the source in whole seconds and its size, which may both be the same.
        self._stamp = max(self._stamp, int(target.stat().st_mtime)) + 2
        os.utime(target, (self._stamp, self._stamp))

    def run(self, argv: Sequence[str], environment: Mapping[str, str], timeout_s: float, most: int = 4000) -> Ended:
        """Run a command of the copy's Python in separate namespaces. All processes it started end with it.

        Args:
            most: Maximum number of characters to keep from the end of the output.
        """
        for name in ("tmp", "home", "cache", "cache-work"):
            shutil.rmtree(self.place / name, ignore_errors=True)
            (self.place / name).mkdir(mode=0o700)
        own = {
            "PATH": f"{self.tree / '.venv/bin'}:{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "VIRTUAL_ENV": str(self.tree / ".venv"),
            "TMPDIR": str(self.place / "tmp"),
            "IRIS_STATE_DIR": str(self.place / "home/iris"),
            "MARIN_PREFIX": str(self.place / "home/marin"),
            "CACHE": _uv_cache(),
        }
        dropped = ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "XDG_RUNTIME_DIR")
        inherited = {name: value for name, value in os.environ.items() if name not in dropped}
        users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        # Should this process be killed, what runs in the copy is to end with it.
        bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command = [
            *bound,
            "unshare", *users, "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc",
            "sh", "-c", _PRELUDE, str(self.place), str(self.tree / ".venv/bin/python"), *argv,
        ]  # fmt: skip
        log = self.place / "output"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env={**inherited, **own, **environment}, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                status: int | None = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return Ended(status, log.read_text(errors="replace")[-most:])
