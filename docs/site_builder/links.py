"""Links of the Markdown files as they lie in the repository, and as they lie in the site."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

_FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")


def rewritten(text: str, source: Path, places: Mapping[Path, Path], root: Path) -> tuple[str, list[str]]:
    """Turn a page's links into those of the site.

    Args:
        text: The page.
        source: Its path, relative to `root`.
        places: Where each file goes in the site, by its path relative to `root`.
        root: The repository.

    Returns:
        The page, in which links to files that the site has not are plain text; and the links that lead nowhere.
    """
    broken: list[str] = []

    def replace(match: "re.Match[str]") -> str:
        target, anchor, fragment = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:") or not target:
            return match[0]
        found = Path(os.path.normpath(source.parent / target))
        place = places.get(found) or places.get(found / "README.md")
        if place is not None:
            way = os.path.relpath(place, places[source].parent)
            return f"{match['image']}[{match['text']}]({way}{anchor}{fragment})"
        if not (root / found).exists():
            broken.append(f"{source}: {match['target']}")
        return match["text"] if "`" in match["text"] or match["image"] else f"{match['text']} (`{found}`)"

    return _outside_fences(text, lambda part: _LINK.sub(replace, part)), broken


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])
