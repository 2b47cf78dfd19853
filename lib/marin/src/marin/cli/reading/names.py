"""Names of runs and outputs for shell completion."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from marin.output_files import INFO_FILE
from marin.recorded.deciding.step_names import split_word, stem_of
from marin.recorded.reading.places import runs_directory, storage_root
from marin.recorded.reading.runs import list_runs
from marin.stored_files import names_in

_MOST = 200
# Each is a request, and somebody waits at the keyboard.
_MOST_LISTINGS = 30
_NO_OUTPUTS = ("experiments", "tmp", "cache")


def names_beginning(typed: str, prefix: str | None, *, runs: bool, steps: bool) -> list[str]:
    """Return the names that begin with the typed text; [] if storage cannot be read, so that completion stays quiet.

    Args:
        typed: The text typed so far.
        prefix: The storage root; None for the default one.
        runs: Whether to include runs.
        steps: Whether to include output paths.
    """
    found: list[str] = []
    if runs:
        found += _safely(lambda: _runs(typed, storage_root(prefix)))
    if steps:
        found += _safely(lambda: _outputs(typed, storage_root(prefix)))
    return found[:_MOST]


def _safely(look: Callable[[], list[str]]) -> list[str]:
    try:
        return look()
    except Exception:  # of storage, credentials, the environment
        return []


def _runs(typed: str, root: str) -> list[str]:
    found = list_runs(runs_directory(root, None))
    stems = [run.stem for run in found]
    return [name for name in dict.fromkeys([*stems, *(run.id for run in found)]) if name.startswith(typed)]


def _outputs(typed: str, root: str) -> list[str]:
    """Return the outputs that begin with the typed text. Directories without a version hash are searched too."""
    before, slash, beginning = typed.rpartition("/")
    pending = deque([(before + slash, beginning)])
    found: list[str] = []
    listings = 0
    while pending and listings < _MOST_LISTINGS and len(found) < _MOST:
        above, start = pending.popleft()
        directory = split_word(f"{above}x", root)[0] if above else root
        names = [name for name in sorted(names_in(directory)) if name.startswith(start)]
        listings += 1
        if not start and above and INFO_FILE in names:
            found.append(above.rstrip("/"))  # at a path that somebody chose
            continue
        for name in names:
            if stem_of(name):
                found.append(above + name)
            elif not name.startswith(".") and (above or name not in _NO_OUTPUTS):
                pending.append((f"{above}{name}/", ""))
    return found
