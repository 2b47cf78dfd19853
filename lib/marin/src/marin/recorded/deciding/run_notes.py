"""Tags and a note that people give to a run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rigging.errors import InvalidRequest

MOST_TAGS: Final = 20
LONGEST_NOTE: Final = 2000
_TAG: Final = re.compile(r"[^\W_][\w.:/@=-]{0,39}")


@dataclass(frozen=True, slots=True)
class RunNotes:
    """The tags and the note of a run.

    Attributes:
        tags: Its tags, sorted.
        note: Its note; "" for none.
    """

    tags: tuple[str, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return them as the content of their file."""
        return {"tags": list(self.tags), "note": self.note}


def parse_notes(content: bytes | None) -> RunNotes:
    """Return the notes in a file; none if it is missing or damaged."""
    try:
        value = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return RunNotes()
    if not isinstance(value, dict):
        return RunNotes()
    tags, note = value.get("tags"), value.get("note")
    known = {tag for tag in tags if isinstance(tag, str) and _TAG.fullmatch(tag)} if isinstance(tags, list) else set()
    return RunNotes(tuple(sorted(known)[:MOST_TAGS]), note[:LONGEST_NOTE] if isinstance(note, str) else "")


def change_notes(notes: RunNotes, changes: Sequence[str], note: str | None) -> RunNotes:
    """Return notes after changes.

    Args:
        notes: The notes.
        changes: `+TAG` adds, `-TAG` removes.
        note: A new note, "" for none; None keeps it.

    Raises:
        InvalidRequest: A change has no sign, a tag is not a word, or there is too much of either.
    """
    tags = set(notes.tags)
    for change in changes:
        sign, tag = change[:1], change[1:]
        if sign not in ("+", "-") or not _TAG.fullmatch(tag):
            raise InvalidRequest(
                f"{change!r}: write +TAG to add, -TAG to remove; a tag is a word of at most 40 letters, digits and any "
                "of . : / @ = _ -"
            )
        (tags.add if sign == "+" else tags.discard)(tag)
    if len(tags) > MOST_TAGS:
        raise InvalidRequest(f"{len(tags)} tags: a run has at most {MOST_TAGS}; remove some with -TAG")
    if note is not None and len(note) > LONGEST_NOTE:
        raise InvalidRequest(f"a note of {len(note)} characters: at most {LONGEST_NOTE} are allowed")
    return RunNotes(tuple(sorted(tags)), notes.note if note is None else note.strip())
