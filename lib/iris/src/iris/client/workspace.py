"""Which files of a workspace go along with a job: what git tracks, and what it neither tracks nor ignores."""

import fnmatch
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.cluster.sizes import format_size
from rigging.errors import InvalidRequest, MarinError

MAX_BUNDLE_ENV: Final = "IRIS_MAX_BUNDLE_MB"
DEFAULT_MAX_BUNDLE_MB: Final = 100
_LARGEST_SHOWN: Final = 10

# Left out where there is no git to say what is ignored.
_IGNORED_DIRS: Final = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache"}
    | {".ruff_cache", ".tox", ".nox", ".ipynb_checkpoints", ".idea", ".vscode", ".cache"}
)
_IGNORED_FILES: Final = ("*.pyc", "*.pyo", ".DS_Store")

_SECRET_NAMES: Final = (".env", ".env.*", ".netrc", ".pypirc", "id_rsa", "id_ed25519", "id_ecdsa", "credentials.json")
_SECRET_SAMPLES: Final = (".example", ".sample", ".template", ".dist")


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A file or symlink of the workspace; `path` is relative with "/", `symlink_target` is None for a file."""

    path: str
    size_bytes: int
    executable: bool
    symlink_target: str | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceListing:
    """The files that go along, sorted by path, and what the user should be told about them."""

    files: tuple[WorkspaceFile, ...]
    warnings: tuple[str, ...]


def list_workspace(root: Path, *, environ: Mapping[str, str] | None = None) -> WorkspaceListing:
    """List the files of the workspace at `root` that a bundle of it holds.

    Raises:
        InvalidRequest: `root` is no directory, or the files are larger than IRIS_MAX_BUNDLE_MB (default 100) allows;
            the message lists the largest.
        MarinError: git failed on what it says is a repository.
    """
    if not root.is_dir():
        raise InvalidRequest(f"workspace {root} is not a directory")
    in_git = _is_in_git(root)
    files, warnings = [], []
    for path in sorted(set(_git_files(root) if in_git else _walk(root))):
        found = _inspect(root, path)
        if isinstance(found, WorkspaceFile):
            files.append(found)
        elif found:
            warnings.append(found)
    limit = _limit_bytes(os.environ if environ is None else environ)
    if sum(file.size_bytes for file in files) > limit:
        raise InvalidRequest(_too_large(root, files, limit, in_git))
    warnings.extend(_secret_warnings(files))
    return WorkspaceListing(tuple(files), tuple(warnings))


def _is_in_git(root: Path) -> bool:
    return any((folder / ".git").exists() for folder in (root, *root.parents))


def _git_files(root: Path, prefix: str = "") -> Iterator[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        yield from (prefix + path for path in _walk(root))
        return
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise MarinError(f"git could not list the files of the workspace {root}: {words}")
    for path in os.fsdecode(done.stdout).split("\0"):
        # A submodule, or a repository inside this one, is listed as one path; it has a listing of its own.
        nested = root / path
        if path and nested.is_dir() and not nested.is_symlink():
            if (nested / ".git").exists():
                yield from _git_files(nested, f"{prefix}{path.rstrip('/')}/")
        elif path:
            yield prefix + path


def _walk(root: Path) -> Iterator[str]:
    for folder, dirs, names in os.walk(root):
        # A directory with pyvenv.cfg is a virtual environment whatever it is called.
        linked = [d for d in dirs if os.path.islink(os.path.join(folder, d))]
        dirs[:] = [
            d
            for d in dirs
            if d not in _IGNORED_DIRS and d not in linked and not os.path.exists(os.path.join(folder, d, "pyvenv.cfg"))
        ]
        for name in (*names, *linked):
            if not any(fnmatch.fnmatch(name, pattern) for pattern in _IGNORED_FILES):
                yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def _inspect(root: Path, path: str) -> WorkspaceFile | str:
    """The file, or a warning (empty for one that is simply gone) when it cannot go along."""
    full = root / path
    try:
        info = full.lstat()
        if stat.S_ISREG(info.st_mode):
            path.encode()
            return WorkspaceFile(path, info.st_size, bool(info.st_mode & 0o100))
        if not stat.S_ISLNK(info.st_mode):
            return f"{path} is neither a file nor a symlink; it is left out"
        target = os.readlink(full)
    except (FileNotFoundError, NotADirectoryError):
        return ""  # deleted, but git still has it
    except UnicodeEncodeError:
        return f"{path!r} is not named in UTF-8; it is left out"
    resolved = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.isabs(target) or resolved == ".." or resolved.startswith("../"):
        return f"symlink {path} points out of the workspace (to {target}); it is left out"
    return WorkspaceFile(path, 0, False, target)


def _limit_bytes(environ: Mapping[str, str]) -> int:
    text = environ.get(MAX_BUNDLE_ENV, str(DEFAULT_MAX_BUNDLE_MB))
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = -1.0
    if not megabytes > 0:
        raise InvalidRequest(f"{MAX_BUNDLE_ENV}={text!r}: give a number of megabytes above 0")
    return int(megabytes * 2**20)


def _too_large(root: Path, files: list[WorkspaceFile], limit: int, in_git: bool) -> str:
    largest = sorted(files, key=lambda file: -file.size_bytes)[:_LARGEST_SHOWN]
    lines = "\n".join(f"  {format_size(file.size_bytes):>9}  {file.path}" for file in largest)
    remedy = (
        "list what the job does not need in .gitignore (or .git/info/exclude); files git tracks also need "
        "`git rm --cached`"
        if in_git
        else "make it a git repository (`git init`) and list what the job does not need in .gitignore"
    )
    total = format_size(sum(file.size_bytes for file in files))
    return (
        f"the workspace {root} is too large to go along with a job: {total} in {len(files)} files, at most "
        f"{format_size(limit)} are allowed. The largest:\n{lines}\n"
        f"To leave files out, {remedy}. To allow more, set {MAX_BUNDLE_ENV}."
    )


def _secret_warnings(files: list[WorkspaceFile]) -> Iterator[str]:
    for file in files:
        name = file.path.rpartition("/")[2]
        if name.endswith(_SECRET_SAMPLES):
            continue
        if any(fnmatch.fnmatch(name, pattern) for pattern in _SECRET_NAMES):
            yield f"{file.path} goes along with the job and may hold secrets; list it in .gitignore to keep it here"
