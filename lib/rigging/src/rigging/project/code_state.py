"""The code of a run: commit, branch, and uncommitted changes. Submitters pass it to their jobs.

A job has no checkout: its submitter passes the code state in the variable `CODE_VARIABLE`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import subprocess
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any, Final

from rigging.project.checkout import checkout_root, git_commit
from rigging.redaction import redact_code, redact_string

CODE_VARIABLE: Final = "MARIN_CODE"
"""The code state of the submitter, in a job."""
RECORD_VARIABLE: Final = "MARIN_RECORD_CODE"
"""Set to 0 to record digests only, no texts."""

GIT_SECONDS: Final = 5.0
MOST_BYTES: Final = 1 << 20
"""Maximum size of the diff and the untracked files together."""
_HANDED_BYTES: Final = 48 << 10
_MOST_NAMES: Final = 20
_CHUNK: Final = 1 << 16
_FIELDS: Final = {"1": 7, "2": 8, "u": 9}
"""The number of fields before the name in a status line, by the kind of line."""
_NO_ENV_FILES: Final = ":(top,exclude,glob)**/.env*"


@dataclass(frozen=True, slots=True)
class CodeState:
    """The checked-out commit, and how the files differ from it.

    Attributes:
        commit: The commit; None if it does not exist or cannot be read.
        branch: The branch; None for a detached head.
        dirty: Whether tracked files differ from the commit or there are untracked Python files; None if unknown.
        digest: SHA-256 of the diff and the untracked Python files before redaction; None when nothing differs.
        diff: `git diff HEAD` without `.env*`, redacted.
        untracked: Untracked Python files that are not ignored, redacted, by path from the checkout's root.
        left_out: The missing texts, with reasons.
        problem: Why the state is incomplete: no checkout, or git failed or timed out.
    """

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    digest: str | None = None
    diff: str = ""
    untracked: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    problem: str | None = None

    def without_texts(self, why: str | None = None) -> CodeState:
        """Return the state with digests only.

        Args:
            why: The reason, for `left_out`.
        """
        if not self.diff and not self.untracked:
            return self
        return replace(self, diff="", untracked={}, left_out=(*self.left_out, *filter(None, [why])))

    def handed(self) -> str:
        """Return the value of `CODE_VARIABLE` for a job, without texts that are too long for a variable."""
        found = _packed(self)
        if len(found) > _HANDED_BYTES:
            found = _packed(self.without_texts("the texts, because they are too long to send with a job"))
        return found


def read_code_state(directory: str, environ: Mapping[str, str] = os.environ) -> CodeState:
    """Return the code state around a directory; in a job, the submitter's. Never fails.

    Args:
        directory: A folder of the checkout.
        environ: Variables with the submitter's state, if any, and `RECORD_VARIABLE`.
    """
    state = handed_code_state(environ) or _of_checkout(directory)
    if environ.get(RECORD_VARIABLE) == "0":
        return state.without_texts(f"the texts, because {RECORD_VARIABLE}=0")
    return state


def handed_code_state(environ: Mapping[str, str]) -> CodeState | None:
    """Return the code state that a submitter passed to this job; None if it is missing or malformed."""
    try:
        found = json.loads(zlib.decompress(base64.b64decode(environ.get(CODE_VARIABLE, ""))))
        return CodeState(**{item.name: found[item.name] for item in fields(CodeState) if item.name in found})
    except (ValueError, TypeError, zlib.error):
        return None


def code_variables(directory: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that pass the code state around a directory to a job; {} without a checkout."""
    state = read_code_state(directory, environ)
    return {CODE_VARIABLE: state.handed()} if state.commit or state.digest else {}


def _packed(state: CodeState) -> str:
    return base64.b64encode(zlib.compress(json.dumps(asdict(state)).encode(), 9)).decode()


def _of_checkout(directory: str) -> CodeState:
    root = checkout_root(directory)
    if root is None:
        return CodeState(problem="no git checkout")
    commit = git_commit(directory)
    try:
        told = _Status.parse(b"".join(_git(root, "status", "--porcelain=v2", "--branch", "-z", "-uall")))
        texts = _Texts()
        if told.changed and told.commit is not None:
            diff = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--")
            texts.add("the diff", _git(root, *diff, *_pathspecs(told.changed), _NO_ENV_FILES))
    except (OSError, _GitFailed) as error:
        return CodeState(commit=commit, problem=redact_string(f"git: {error}"))
    diff_text = texts.kept.pop("the diff", "")
    for name in told.untracked:
        texts.add(name, _content(root / name))
    return CodeState(
        commit=told.commit or commit,
        branch=told.branch,
        dirty=bool(told.changed or told.untracked),
        digest=texts.digest.hexdigest() if told.changed or told.untracked else None,
        diff=diff_text,
        untracked=texts.kept,
        left_out=tuple(texts.left_out),
    )


def _pathspecs(names: Sequence[str]) -> Sequence[str]:
    """Return the arguments that limit git to these files; to none if the names are too long for a command."""
    return [f":(top,literal){name}" for name in names] if sum(map(len, names)) <= _CHUNK else [":(top)"]


class _GitFailed(Exception):
    """A git command failed."""


def _git(root: Path, *words: str) -> Iterator[bytes]:
    """Yield the output of a git command. Raise _GitFailed if it fails or takes longer than `GIT_SECONDS`."""
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as git:
        assert git.stdout is not None
        assert git.stderr is not None
        expired = threading.Event()

        def stop() -> None:
            expired.set()
            git.kill()

        timer = threading.Timer(GIT_SECONDS, stop)
        timer.start()
        try:
            while chunk := git.stdout.read(_CHUNK):
                yield chunk
            said = git.stderr.read(_CHUNK).decode(errors="replace").strip()
            code = git.wait()
        finally:
            timer.cancel()
            git.kill()
    if expired.is_set():
        raise _GitFailed(f"{words[0]} took longer than {GIT_SECONDS:g} s")
    if code:
        raise _GitFailed(f"{words[0]} failed: {said.partition(chr(10))[0]}")


@dataclass(frozen=True, slots=True)
class _Status:
    commit: str | None
    branch: str | None
    changed: tuple[str, ...]
    untracked: tuple[str, ...]

    @classmethod
    def parse(cls, output: bytes) -> _Status:
        """Parse the output of `git status --porcelain=v2 --branch -z`."""
        heads: dict[str, str] = {}
        changed: list[str] = []
        untracked: list[str] = []
        entries = iter(os.fsdecode(output).split("\0"))
        for entry in entries:
            kind, _, rest = entry.partition(" ")
            if kind == "#":
                name, _, value = rest.partition(" ")
                heads[name] = value
            elif kind == "?":
                if rest.endswith(".py") and not any(part.startswith(".env") for part in rest.split("/")):
                    untracked.append(rest)
            elif kind in _FIELDS:
                changed.append(rest.split(" ", _FIELDS[kind])[-1])
                if kind == "2":
                    changed.append(next(entries, ""))  # the earlier name
        commit, branch = heads.get("branch.oid"), heads.get("branch.head")
        return cls(
            commit=None if commit == "(initial)" else commit,
            branch=None if branch == "(detached)" else branch,
            changed=tuple(changed),
            untracked=tuple(sorted(untracked)),
        )


class _Texts:
    """The recorded texts: all of them enter the digest, and up to `MOST_BYTES` are kept, redacted."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.kept: dict[str, str] = {}
        self.left_out: list[str] = []
        self._room = MOST_BYTES

    def add(self, name: str, chunks: Iterator[bytes]) -> None:
        """Add a text to the digest, and keep it if it fits."""
        self.digest.update(f"{name}\0".encode(errors="surrogateescape"))
        read = bytearray()
        size = 0
        try:
            for chunk in chunks:
                self.digest.update(chunk)
                size += len(chunk)
                if size <= self._room:
                    read += chunk
        except OSError as error:
            self._leave_out(f"{name}: {error.strerror}")
            return
        if size > self._room:
            self._leave_out(f"{name}: {size} bytes, above the total of {MOST_BYTES}")
            return
        self._room -= size
        self.kept[name.encode(errors="replace").decode()] = redact_code(read.decode(errors="replace"))

    def _leave_out(self, what: str) -> None:
        if len(self.left_out) < _MOST_NAMES:
            self.left_out.append(what.encode(errors="replace").decode())
        elif len(self.left_out) == _MOST_NAMES:
            self.left_out.append("and more")


def _content(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file: IO[Any]
    with open(descriptor, "rb") as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while chunk := file.read(_CHUNK):
                yield chunk
