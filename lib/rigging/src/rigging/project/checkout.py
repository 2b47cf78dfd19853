"""Find the checked-out commit around a directory, from git's files where possible."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

# With these variables git looks for the checkout elsewhere, or in fewer places.
_RELOCATING = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_CEILING_DIRECTORIES"})

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def git_commit(directory: str) -> str | None:
    """Return the commit that is checked out around a directory; None outside a checkout or without git."""
    # Starting git takes longer than planning fifty steps, so the usual forms of a checkout are read here. That also
    # works for a checkout that belongs to another user, as in a container, which git refuses to read.
    return _commit_in_files(Path(directory)) or _commit_by_git(directory)


def checkout_root(directory: str) -> Path | None:
    """Return the root of the checkout around a directory; the directory itself if git's variables name a repository."""
    place = Path(directory).resolve()
    if not _RELOCATING.isdisjoint(os.environ):
        return place if place.is_dir() else None
    return next((parent for parent in (place, *place.parents) if (parent / ".git").exists()), None)


def _commit_in_files(directory: Path) -> str | None:
    """Read the commit from the files of a checkout; return None if their format is unknown."""
    if not _RELOCATING.isdisjoint(os.environ):
        return None
    try:
        root = checkout_root(str(directory))
        if root is None:
            return None
        git = root / ".git"
        if git.is_file():  # a linked worktree or a submodule
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return _checked(head)
        branch = head.removeprefix("ref:").strip()
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").exists() else git
        if (common / branch).is_file():
            return _checked((common / branch).read_text().strip())
        lines = (line.split() for line in (common / "packed-refs").read_text().splitlines())
        return next((_checked(words[0]) for words in lines if words[1:] == [branch]), None)
    except (OSError, ValueError):
        return None


def _checked(text: str) -> str | None:
    return text if _COMMIT.fullmatch(text) else None


def _commit_by_git(directory: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=directory, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
