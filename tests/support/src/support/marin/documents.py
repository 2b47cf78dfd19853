"""The code of documents, to be run word for word."""

import re
from pathlib import Path


def blocks(document: Path) -> list[str]:
    """Return the Python blocks of a document."""
    return re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def filled(text: str, *fillings: tuple[str, str]) -> str:
    """Return the text with the first `...` after each of these beginnings replaced."""
    for before, filling in fillings:
        head, found, tail = text.partition(before)
        assert found, before
        gap, dots, rest = tail.partition("...")
        assert dots, f"no ... after {before}"
        text = head + before + gap + filling + rest
    return text
