"""The folder that a job receives as its workspace, and which of its files.

In a git repository these are the tracked files and the untracked ones that are not ignored. Elsewhere, everything
except files that are usually ignored.
"""

import fnmatch
import itertools
import math
import os
import stat
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rigging.errors import InvalidRequest, MarinError
from rigging.text.quantities import format_size

MAX_FILES: Final = 50_000
GIT_SECONDS: Final = 120.0
_LARGEST_SHOWN: Final = 10
_SEARCH_ON_SECONDS: Final = 2.0
"""Time to search the rest of a workspace that is already too large, for its largest files."""

# Left out where there is no git to say what is ignored.
_IGNORED_DIRS: Final = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache"}
    | {".ruff_cache", ".tox", ".nox", ".ipynb_checkpoints", ".idea", ".vscode", ".cache", ".eggs", ".hypothesis"}
)
_IGNORED_FILES: Final = ("*.pyc", "*.pyo", ".DS_Store")

_DOTENV: Final = ".env*"
_SECRET_NAMES: Final = (_DOTENV, ".netrc", ".pypirc", "id_rsa", "id_ed25519", "id_ecdsa", "credentials.json")
_SECRET_SAMPLES: Final = (".example", ".sample", ".template", ".dist")

_SYSTEM_DIRS: Final = frozenset(
    {"/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/root", "/run", "/sbin"}
    | {"/srv", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp", "/Users", "/private", "/private/tmp", "/Library"}
)
_SYSTEM_TREES: Final = ("/dev", "/proc", "/sys")


@dataclass(frozen=True, slots=True)
class WorkspaceRules:
    """The size limit of a tool's workspaces, and its advice for one that is refused.

    Args:
        limit_variable: The environment variable that sets the limit, in megabytes.
        default_mb: The default limit.
        other_ways: For messages: the tool's options to send another folder or none.
    """

    limit_variable: str = "MARIN_MAX_WORKSPACE_MB"
    default_mb: float = 100
    other_ways: str = "name another folder"


DEFAULT_RULES: Final = WorkspaceRules()


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A file or symlink of the workspace. `path` is relative with "/"; `symlink_target` is None for a file."""

    path: str
    size_bytes: int
    executable: bool
    symlink_target: str | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceListing:
    """The sorted files and empty folders of a workspace, and messages for the user."""

    files: tuple[WorkspaceFile, ...]
    warnings: tuple[str, ...]
    empty_folders: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def list_workspace(
    root: Path,
    *,
    rules: WorkspaceRules = DEFAULT_RULES,
    environ: Mapping[str, str] | None = None,
    max_files: int = MAX_FILES,
    now: Callable[[], float] = time.monotonic,
) -> WorkspaceListing:
    """List the files at `root` that a bundle of the workspace contains.

    Args:
        root: A directory, inside a git repository or not.
        rules: The limits.
        environ: Variables that may change the limit; None for this process's.
        max_files: Maximum number of files.
        now: A clock in seconds; replaced in tests.

    Raises:
        InvalidRequest: `root` is not a directory, or its files exceed the rules or `max_files`. The message lists the
            largest.
        MarinError: git failed in a repository.
    """
    if not root.is_dir():
        raise InvalidRequest(f"workspace {root} is not a directory")
    limit = _limit_bytes(rules, os.environ if environ is None else environ)
    gathered = _Gathered(root, rules, limit, max_files, now)
    if _is_in_git(root):
        gathered.add_all(_git_files(root, gathered))
        gathered.in_git = bool(gathered.files)
    if not gathered.in_git:  # also a folder that the repository around it ignores
        gathered.folders.clear()
        gathered.add_all(_walk(root, gathered))
    gathered.check()
    files = tuple(sorted(gathered.files.values(), key=lambda file: file.path))
    folders = empty_folders(gathered.folders, gathered.files)
    return WorkspaceListing(files, (*gathered.warnings, *_secret_warnings(files)), folders)


def empty_folders(folders: Iterable[str], files: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted `folders` that contain neither one of `files` nor another folder."""
    found = set(folders)
    filled: set[str] = set(files)
    for path in (*filled, *found):
        above = path.rpartition("/")[0]
        while above and above not in filled:
            filled.add(above)
            above = above.rpartition("/")[0]
    return tuple(sorted(found - filled))


def check_workspace_root(
    root: Path, *, rules: WorkspaceRules = DEFAULT_RULES, environ: Mapping[str, str] | None = None
) -> None:
    """Refuse folders that are not a project: "/", the home directory, /tmp and the like.

    Args:
        root: The folder.
        rules: As in `list_workspace`.
        environ: Variables that contain HOME; None for this process's.

    Raises:
        InvalidRequest: The folder is refused. The message says which kind it is.
    """
    if not root.is_dir():
        raise InvalidRequest(f"workspace {root} is not a directory")
    reason = reason_against_root(root, environ)
    if reason:
        raise InvalidRequest(
            f"the workspace {root} is {reason}, which is too broad to send with a job: run it in the folder "
            f"of your files, or {rules.other_ways}"
        )


def reason_against_root(root: Path, environ: Mapping[str, str] | None) -> str:
    """Return the kind of a folder that can never be a workspace; "" for any other."""
    environ = os.environ if environ is None else environ
    path = root.resolve()
    home = Path(environ.get("HOME") or os.path.expanduser("~")).resolve()
    if path == home:
        return "your home directory"
    if path == Path("/"):
        return "the root of the file system"
    # Some set HOME to a folder of the project for the time of a build.
    if home.is_relative_to(path) and not any((path / mark).exists() for mark in (".git", "pyproject.toml")):
        return "a folder above your home directory"
    if str(path) in _SYSTEM_DIRS or any(path.is_relative_to(tree) for tree in _SYSTEM_TREES):
        return "a directory of the system"
    if path == Path(environ.get("TMPDIR") or tempfile.gettempdir()).resolve():
        return "the directory of temporary files"
    return ""


@dataclass(slots=True)
class _Gathered:
    """The files found so far. The search stops early once the workspace must be refused."""

    root: Path
    rules: WorkspaceRules
    limit: int
    max_files: int
    now: Callable[[], float]
    in_git: bool = False
    files: dict[str, WorkspaceFile] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    """All folders that may be empty, and some that are not."""
    warnings: list[str] = field(default_factory=list)
    size_bytes: int = 0
    complete: bool = True

    def add_all(self, paths: Iterable[str]) -> None:
        until: float | None = None
        for path in paths:
            found = _inspect(self.root, path) if path not in self.files else ""
            if isinstance(found, WorkspaceFile):
                self.files[path] = found
                self.size_bytes += found.size_bytes
            elif found:
                self.warnings.append(found)
            if self.size_bytes > self.limit and until is None:
                until = self.now() + _SEARCH_ON_SECONDS
            if len(self.files) > self.max_files or (until is not None and self.now() > until):
                self.complete = False
                return

    def add_folder(self, path: str) -> None:
        try:
            path.encode()
        except UnicodeEncodeError:
            self.warnings.append(f"{path!r} is not named in UTF-8; skipping it")
        else:
            self.folders.add(path)

    def check(self) -> None:
        """Raise InvalidRequest if the workspace is too large to send."""
        too_many = len(self.files) > self.max_files
        if self.size_bytes <= self.limit and not too_many:
            return
        files, size = len(self.files), format_size(self.size_bytes)
        found = f"{size} in {files} files" if self.complete else f"more than {size} in more than {files - 1} files"
        shown = _most_files(self.files.values()) if too_many else _largest(self.files.values())
        allowed = f"{self.max_files} files" if too_many else format_size(self.limit)
        remedy = (
            "list what the job does not need in .gitignore (or .git/info/exclude); files git tracks also need "
            "`git rm --cached`"
            if self.in_git
            else "make it a git repository (`git init`) and list what the job does not need in .gitignore"
        )
        raise InvalidRequest(
            f"the workspace {self.root} is too large to send with a job: {found}, at most {allowed} are allowed. "
            f"The largest:\n{shown}\nTo leave files out, {remedy}; or {self.rules.other_ways}."
            + ("" if too_many else f" To allow more, set {self.rules.limit_variable}.")
        )


def _largest(files: Iterable[WorkspaceFile]) -> str:
    largest = sorted(files, key=lambda file: -file.size_bytes)[:_LARGEST_SHOWN]
    return "\n".join(f"  {format_size(file.size_bytes):>9}  {file.path}" for file in largest)


def _most_files(files: Iterable[WorkspaceFile]) -> str:
    folders = Counter(file.path.rpartition("/")[0] or "." for file in files)
    return "\n".join(f"  {count:>7} files in {folder}" for folder, count in folders.most_common(_LARGEST_SHOWN))


def _is_in_git(root: Path) -> bool:
    return any((folder / ".git").exists() for folder in (root, *root.parents))


def _git_files(root: Path, found: _Gathered, prefix: str = "") -> Iterator[str]:
    try:
        entries, words = _git_list(root, "-t", "--cached", "--others")
    except FileNotFoundError:
        yield from (prefix + path for path in _walk(root, found, prefix))
        return
    found.warnings.extend(f"git: {line}; skipping it" for line in words.splitlines() if "could not open" in line)
    for entry in entries:
        tag, _, path = entry.partition(" ")
        # A submodule, or a repository inside this one, is listed as one path; it has a listing of its own.
        nested = root / path
        if path and nested.is_dir() and not nested.is_symlink():
            if (nested / ".git").exists():
                yield from _git_files(nested, found, f"{prefix}{path.rstrip('/')}/")
        elif path and tag == "?" and any(map(_is_dotenv, path.split("/"))):
            found.warnings.append(f"{prefix}{path} may hold secrets; skipping it (`git add` it if the job needs it)")
        elif path:
            yield prefix + path
    for path in _git_folders(root):
        found.add_folder(prefix + path.rstrip("/"))


def _git_list(root: Path, *options: str) -> tuple[list[str], str]:
    """Return the output of `git ls-files`, and its warnings. Raise FileNotFoundError if git is not installed."""
    return _git(root, ["ls-files", "-z", "--exclude-standard", *options])


def _git(
    root: Path, words: Sequence[str], given: Sequence[str] = (), fine: Sequence[int] = (0,)
) -> tuple[list[str], str]:
    """Return the output of a git command for the paths `given`, and its warnings."""
    command, stdin = ["git", *words], os.fsencode("\0".join(given))
    try:
        done = subprocess.run(command, cwd=root, input=stdin, capture_output=True, check=False, timeout=GIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise InvalidRequest(
            f"git needs more than {GIT_SECONDS:.0f} s to list the files of the workspace {root}; list large folders "
            "that the job does not need in .gitignore, or name another folder"
        ) from None
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode not in fine:
        raise MarinError(f"git could not list the files of the workspace {root}: {said}")
    return [entry for entry in os.fsdecode(done.stdout).split("\0") if entry], said


def _git_folders(root: Path) -> list[str]:
    """Return folders without files known to git, and the folders in them, except ignored ones and nested
    repositories.
    """
    unknown = [path for path in _git_list(root, "--others", "--directory")[0] if path.endswith("/")]
    found = [
        os.path.relpath(folder, root).replace(os.sep, "/")
        for path in unknown
        if not any(map(_is_left_out, path.split("/")))
        for folder in itertools.islice(_folders_without_git(root / path), MAX_FILES)
    ]
    if not found:
        return []
    ignored, _ = _git(root, ["check-ignore", "-z", "--stdin"], [f"{path}/" for path in found], fine=(0, 1))
    return sorted({f"{path}/" for path in found}.difference(ignored, {"./"}))


def _folders_without_git(top: Path) -> Iterator[str]:
    for folder, dirs, names in os.walk(top):
        if ".git" in dirs or ".git" in names:
            dirs.clear()
            continue
        dirs[:] = [name for name in dirs if not _is_other_kind(folder, name)]
        yield folder


def _walk(root: Path, found: _Gathered, prefix: str = "") -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        place = os.path.relpath(error.filename, root)
        found.warnings.append(f"{place} cannot be read: {error.strerror}; skipping it")

    for folder, dirs, names in os.walk(root, onerror=unreadable):
        linked = [d for d in dirs if os.path.islink(os.path.join(folder, d))]
        dirs[:] = [d for d in dirs if d not in linked and not _is_other_kind(folder, d)]
        place = os.path.relpath(folder, root).replace(os.sep, "/")
        if place != ".":
            found.add_folder(prefix + place)
        for name in (*names, *linked):
            if not _is_dotenv(name) and not any(fnmatch.fnmatch(name, pattern) for pattern in _IGNORED_FILES):
                yield name if place == "." else f"{place}/{name}"


def _is_other_kind(folder: str, name: str) -> bool:
    """Return whether a directory is a cache, an environment or the like. Any directory with pyvenv.cfg is one."""
    return _is_left_out(name) or os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))


def _is_left_out(name: str) -> bool:
    return name in _IGNORED_DIRS or _is_dotenv(name)


def _is_dotenv(name: str) -> bool:
    return fnmatch.fnmatch(name, _DOTENV) and not name.endswith(_SECRET_SAMPLES)


def _inspect(root: Path, path: str) -> WorkspaceFile | str:
    """Return the file, or a warning (empty if it is gone) if it cannot be sent."""
    full = root / path
    try:
        info = full.lstat()
        if stat.S_ISREG(info.st_mode):
            path.encode()
            return WorkspaceFile(path, info.st_size, bool(info.st_mode & 0o100))
        if not stat.S_ISLNK(info.st_mode):
            return f"{path} is neither a file nor a symlink; skipping it"
        target = os.readlink(full)
        path.encode()
        target.encode()
    except (FileNotFoundError, NotADirectoryError):
        return ""  # deleted, but git still has it
    except UnicodeEncodeError:
        return f"{path!r} is not named in UTF-8; skipping it"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}; skipping it"
    resolved = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.isabs(target) or resolved == ".." or resolved.startswith("../"):
        return f"symlink {path} points out of the workspace (to {target}); skipping it"
    return WorkspaceFile(path, 0, False, target)


def _limit_bytes(rules: WorkspaceRules, environ: Mapping[str, str]) -> int:
    text = environ.get(rules.limit_variable, str(rules.default_mb))
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = -1.0
    if not 0 < megabytes < math.inf:
        raise InvalidRequest(f"{rules.limit_variable}={text!r}: give a number of megabytes above 0")
    return int(megabytes * 2**20)


def _secret_warnings(files: Iterable[WorkspaceFile]) -> Iterator[str]:
    for file in files:
        name = file.path.rpartition("/")[2]
        if name.endswith(_SECRET_SAMPLES):
            continue
        if any(fnmatch.fnmatch(name, pattern) for pattern in _SECRET_NAMES):
            yield f"{file.path} is sent with the job and may hold secrets; list it in .gitignore to keep it here"
