"""Finds the paths in requirements files: other requirements files, folders and archives."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rigging.errors import InvalidRequest

_ARCHIVES: Final = (".whl", ".tar.gz", ".zip", ".tgz")


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path in a requirements file.

    Args:
        written: The path as written.
        target: The resolved path.
        origin: The file that contains it, relative to the first file's directory.
        is_file: Whether it is another requirements (or constraints) file.
    """

    written: str
    target: Path
    origin: str
    is_file: bool


def named_paths(
    path: Path, within: Path | None = None, _seen: set[Path] | None = None, _root: Path | None = None
) -> Iterator[NamedPath]:
    """Return the paths in the requirements file `path` and in the files that it includes.

    Args:
        path: The file.
        within: Included files outside this directory are not read; None to read all.

    Raises:
        InvalidRequest: A file cannot be read.
    """
    seen = set() if _seen is None else _seen
    root = path.parent if _root is None else _root
    if path in seen:
        return
    seen.add(path)
    origin = os.path.relpath(path, root)
    try:
        lines = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{origin} cannot be read: {error}") from None
    for line in lines:
        text = re.sub(r"(^|\s)#.*$", "", line).strip()
        option = re.match(r"(-r|--requirements?|-c|--constraints?)(?:\s+|=|(?=[^-\s]))(\S.*)", text)
        links = re.match(r"(?:-f|--find-links)(?:\s+|=)(\S.*)", text)
        if links is not None:
            if "://" not in links[1] or links[1].lower().startswith("file:"):
                yield NamedPath(links[1], file_target(links[1], root), origin, False)
        elif option is None:
            written = _requirement_path(text)
            if written:  # as pip and uv do: relative to where they run
                yield NamedPath(written, file_target(written, root), origin, False)
        elif "://" not in option[2]:
            target = Path(os.path.normpath(path.parent / option[2]))
            yield NamedPath(option[2], target, origin, True)
            if (within is None or target.is_relative_to(within)) and target.is_file():
                yield from named_paths(target, within, seen, root)


def file_target(written: str, directory: Path) -> Path:
    """Return the target of a path or a "file:" URL as written in a file of `directory`."""
    if written.lower().startswith("file:"):
        written = unquote(urlsplit(written).path)
    return Path(os.path.normpath(directory / written))


def _requirement_path(text: str) -> str:
    """Return the path in a line of a requirements file; empty for any other line."""
    editable = re.match(r"(?:-e\s*|--editable(?:\s+|=))(\S.*)", text)
    named = re.match(r"[A-Za-z0-9._-]+\s*(?:\[[^\]]*\])?\s*@\s*(\S+)", text)
    path = (editable[1] if editable else named[1] if named else text).split(" ;")[0].strip().strip("'\"")
    path = re.sub(r"\[[A-Za-z0-9,._\s-]*\]$", "", path)
    if re.match(r"file:", path, re.IGNORECASE):
        return path
    if "://" in path or not path or path.startswith("-") or "${" in path:
        return ""
    if editable or path.startswith((".", "/", "~")) or path.lower().endswith(_ARCHIVES):
        return path
    return path if "/" in path and not re.search(r"[<>=!~;@\s]", path) else ""
