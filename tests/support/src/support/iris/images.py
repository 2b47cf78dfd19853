"""Container images made of this host's files, for tests that may reach no registry."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

PODMAN: Final = "podman --runtime runc --cgroup-manager cgroupfs"
_PROGRAMS: Final = ("cat", "dash", "env", "sleep", "true")


def why_not() -> str:
    """Return why containers cannot run here; empty if they can."""
    missing = [name for name in ("podman", "runc", "catatonit") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} here (Debian: apt-get install podman runc catatonit)"
    return "" if os.geteuid() == 0 else "containers of this suite need root"


def podman(*words: str, stdin: bytes | None = None) -> str:
    """Run podman, and return its output."""
    done = subprocess.run([*shlex.split(PODMAN), *words], input=stdin, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def make_image(image: str, place: Path) -> None:
    """Import an image with a shell, some programs, and the libraries that this interpreter needs, but no Python.

    Args:
        image: Name of the image.
        place: An empty directory.
    """
    programs = [str(shutil.which(program)) for program in _PROGRAMS]
    modules = [str(path) for path in Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so")]
    for name in ("bin", "lib", "lib64"):
        (place / "usr" / name).mkdir(parents=True)
        (place / name).symlink_to(f"usr/{name}")
    for path in {*programs, *_libraries([*programs, os.path.realpath(sys.executable), *modules])}:
        target = place / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    (place / "bin" / "sh").symlink_to("dash")
    for directory in ("tmp", "etc", "proc", "dev"):  # engines mount into them
        (place / directory).mkdir(exist_ok=True)
    (place / "etc" / "image").write_text("of the image")
    archive = subprocess.run(["tar", "-C", str(place), "-c", "."], capture_output=True, check=True).stdout
    podman("import", "--change", "ENV FROM_IMAGE=yes", "-", image, stdin=archive)


def _libraries(files: list[str]) -> set[str]:
    done = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False)
    found = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE))
    return {path for path in found if not path.startswith(sys.base_prefix)}
