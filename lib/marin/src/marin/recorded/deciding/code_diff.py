"""The differences between the code of two runs, as text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

_FILE = re.compile(r"^diff --git (?:\"?a/.*?\"? )\"?b/(?P<name>.*?)\"?$", re.MULTILINE)


def uncommitted_files(texts: Mapping[str, Any]) -> dict[str, str]:
    """Return a run's uncommitted code by file: its part of the diff, or an untracked file.

    Args:
        texts: The result of `marin.execution.record.code_record.read_code_texts`.
    """
    diff = texts.get("diff")
    found: dict[str, str] = {}
    if isinstance(diff, str):
        heads = list(_FILE.finditer(diff))
        ends = [head.start() for head in heads[1:]] + [len(diff)] * bool(heads)
        found = {head["name"]: diff[head.start() : end] for head, end in zip(heads, ends, strict=True)}
    untracked = texts.get("untracked")
    return found | (dict(untracked) if isinstance(untracked, dict) else {})


def content_diff_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the definitions in which the functions of two runs differ, as a unified diff.

    Args:
        before: The contents of the earlier run, from `read_code_texts`.
        after: The contents of the later run.
    """
    lines: list[str] = []
    one, other = _definitions(before), _definitions(after)
    for where in sorted(one.keys() & other.keys()):
        lines += difflib.unified_diff(one[where], other[where], where, where, lineterm="")
    return lines


def _definitions(contents: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the lines of each definition that has a text, by file and name."""
    functions, texts = contents.get("functions"), contents.get("texts")
    if not isinstance(functions, dict) or not isinstance(texts, dict):
        return {}
    return {
        f"{file}: {name}": str(texts[digest]).splitlines()
        for files in functions.values()
        for file, names in files.items()
        for name, digest in names.items()
        if digest in texts
    }


def code_diff_lines(
    before: Mapping[str, Any], after: Mapping[str, Any], texts_before: Mapping[str, Any], texts_after: Mapping[str, Any]
) -> list[str]:
    """Return the differences between the code of two runs as lines: the commits, then every uncommitted file.

    Args:
        before: The `code` of the earlier run.
        after: The `code` of the later run.
        texts_before: The earlier run's texts.
        texts_after: The later run's texts.
    """
    lines = []
    commits = (before.get("commit"), after.get("commit"))
    if all(commits) and commits[0] != commits[1]:
        lines.append(f"committed changes: git diff {commits[0]} {commits[1]}")
    old, new = uncommitted_files(texts_before), uncommitted_files(texts_after)
    for name in sorted({*old, *new}):
        one, other = old.get(name, "").splitlines(), new.get(name, "").splitlines()
        where = (f"{name} (not committed, before)", f"{name} (not committed, after)")
        lines += difflib.unified_diff(one, other, *where, lineterm="")
    return lines
