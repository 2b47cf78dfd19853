"""The texts of definitions that a run reaches, and the installed packages, to show later changes.

Each is one JSON object in the folder of runs' code, named by a digest, and written once.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from marin.execution.record.own_modules import OwnModules
from marin.execution.version.differences import Difference
from rigging.filesystem import local_path, read_bytes_or_none, url_to_fs, write_bytes_atomic
from rigging.filesystem.location import path_in

MOST_BYTES: Final = 8 << 20
MOST_OBJECTS: Final = 200
_CONTENTS: Final = "contents-"
_CODE_FOLDER: Final = "code"


def write_contents(directory: str, modules: OwnModules, functions: Mapping[str, Collection[Any]]) -> str | None:
    """Write the definitions that functions reach, unless they exist. Return the object's name.

    Args:
        directory: The directory of run records.
        modules: The user's own modules.
        functions: Functions and classes, by the name of the step's function that leads to them.
    """
    reached = {name: found for name, code in sorted(functions.items()) if (found := modules.all_reached(code))}
    if not reached:
        return None
    name = _CONTENTS + _digest(reached)
    path = path_in(directory, f"{_CODE_FOLDER}/{name}.json")
    if read_bytes_or_none(path) is None:
        texts = modules.texts(itertools.chain(*functions.values()))
        content = json.dumps({"functions": reached, "texts": texts if _size(texts) <= MOST_BYTES else {}}).encode()
        write_bytes_atomic(path, content)
    return name


def write_packages(directory: str) -> str:
    """Write the names and versions of installed packages, unless they exist. Return the object's name."""
    packages = installed_packages(sys.path)
    name = f"packages-{_digest(packages)}"
    path = path_in(directory, f"{_CODE_FOLDER}/{name}.json")
    if read_bytes_or_none(path) is None:
        write_bytes_atomic(path, json.dumps(packages, indent=1).encode())
    return name


def installed_packages(places: Iterable[str]) -> dict[str, str]:
    """Return the versions of installed packages by name, read from the names of their folders.

    Args:
        places: The folders of packages; the first package of a name counts.
    """
    found: dict[str, str] = {}
    for place in places:
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for folder in names:
            name, _, version = folder.removesuffix(".dist-info").partition("-")
            if folder.endswith(".dist-info") and version:
                found.setdefault(name, version)
    return dict(sorted(found.items()))


def read_contents(directory: str, digests: set[str]) -> dict[str, str]:
    """Return the texts of definitions by digest, as far as recorded.

    Args:
        directory: The directory of run records.
        digests: The digests to look for.
    """
    found: dict[str, str] = {}
    folder = path_in(directory, _CODE_FOLDER)
    for name in _names_in(folder)[:MOST_OBJECTS] if digests else ():
        found |= {key: text for key, text in _texts_in(path_in(folder, name)).items() if key in digests}
        if len(found) == len(digests):
            break
    return found


def text_changes(found: Sequence[Difference], old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return code differences as a unified diff, as far as the texts are recorded.

    Args:
        found: The differences of digests.
        old: The texts of the code that made an output, by digest.
        new: The current texts, by digest.
    """
    lines: list[str] = []
    for item in found:
        before, after = old.get(str(item.before)), new.get(str(item.after))
        if (before is None) != (item.before is None) or (after is None) != (item.after is None):
            continue
        where = item.where.removeprefix("source of ")
        lines += difflib.unified_diff(
            (before or "").splitlines(), (after or "").splitlines(), where, where, lineterm=""
        )
    return lines


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _size(texts: Mapping[str, str]) -> int:
    return sum(map(len, texts.values()))


def _texts_in(path: str) -> dict[str, str]:
    try:
        found = json.loads(read_bytes_or_none(path) or b"{}").get("texts")
    except (ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _names_in(folder: str) -> list[str]:
    """Return the names of the objects with contents; on disks, newest first."""
    local = local_path(folder)
    try:
        if local is not None:
            with os.scandir(local) as entries:
                made = sorted(entries, key=lambda entry: -entry.stat().st_mtime)
            names = [entry.name for entry in made]
        else:
            fs, place = url_to_fs(folder)
            names = [str(path).rpartition("/")[2] for path in fs.ls(place, detail=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if name.startswith(_CONTENTS)]
