"""The table in docs/fray.md: every declared difference, for every available backend.

usage: python -m fray.testing.docs docs/fray.md      (writes the table into the file)
"""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from fray.backends import local
from fray.capabilities import DIFFERENCES, BackendCapabilities
from fray.registry import BACKENDS

BEGIN = "<!-- capabilities: written by python -m fray.testing.docs docs/fray.md -->"
END = "<!-- end of capabilities -->"


def declared() -> dict[str, BackendCapabilities]:
    """Return the capabilities of fray's backends, by their public names."""
    found = {"local": local.CAPABILITIES, "local, processes": local.PROCESS_CAPABILITIES}
    for backend in BACKENDS:
        if backend.name != "local" and importlib.util.find_spec(backend.module) is not None:
            found[backend.name] = importlib.import_module(backend.module).CAPABILITIES
    return found


def table(backends: Mapping[str, BackendCapabilities]) -> str:
    """Return a Markdown table: a line for each promise that not all backends make, a column for each backend."""
    lines = [
        f"| promise | {' | '.join(backends)} | otherwise |",
        "|---|" + "---|" * len(backends) + "---|",
    ]
    for name, difference in DIFFERENCES.items():
        cells = ["yes" if getattr(capabilities, name) else "–" for capabilities in backends.values()]
        if "–" in cells:
            lines.append(f"| {difference.promise} | {' | '.join(cells)} | {difference.instead} |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """Return the document with the table up to date."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(declared())}\n{END}{after}"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_table(document.read_text(encoding="utf-8")), encoding="utf-8")
