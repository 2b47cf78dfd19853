"""Lookup of outputs: by output path, or by a step's name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# `{name}-{6 hex}` of a step, with `@TAG` of one that ran anew; `{name}_{8 hex}` of a bare StepSpec.
_OUTPUT: Final = re.compile(r"(?P<stem>.+?)(?:-(?P<digits>[0-9a-f]{6})(?:@[\w-]+)?|_[0-9a-f]{8})", re.DOTALL)


def split_word(word: str, root: str) -> tuple[str, str]:
    """Split a word for a step into a directory and a name.

    Args:
        word: An absolute path or URL, or a path below the storage root.
        root: The storage root.
    """
    is_absolute = word.startswith("/") or "://" in word
    path = (word if is_absolute else f"{root}/{word}").rstrip("/")
    directory, _, name = path.rpartition("/")
    return directory, name


def stem_of(name: str) -> str | None:
    """Return the step's name in an output's name; None if it does not end in a version hash."""
    match = _OUTPUT.fullmatch(name)
    return None if match is None else match["stem"]


def digits_of(name: str) -> str:
    """Return the version hash in the name of a step's output; "" if it has none."""
    match = _OUTPUT.fullmatch(name)
    return "" if match is None else match["digits"] or ""


def outputs_named(name: str, names: Iterable[str]) -> list[str]:
    """Return the outputs of a directory that match a word: the output of exactly that name, else all outputs of the
    step.
    """
    found = sorted(names)
    return [name] if name in found else [other for other in found if stem_of(other) == name]
