"""Select the mistakes to try: a random sample by seed, or those of an earlier report."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.mutation.sites import Mutation, changed_lines, find_mutations

PACKAGES: Final = ("iris", "rigging", "marin")
# Generated code; and the instruments of tests, whose mistakes are the tests' own.
_LEFT_OUT: Final = ("_pb2.py", "_pb2_grpc.py", "/testing/", "/testing.py", "/sim/")


def source_files(root: Path, packages: Sequence[str]) -> list[Path]:
    """Return the sorted source files of packages ("iris", or a part such as "iris.core"), relative to the repository.

    Raises:
        ValueError: A package does not exist.
    """
    found: set[Path] = set()
    for package in packages:
        top = package.partition(".")[0]
        place = root / "lib" / top / "src" / package.replace(".", "/")
        here = [place.with_suffix(".py")] if place.with_suffix(".py").is_file() else sorted(place.rglob("*.py"))
        if not here:
            raise ValueError(f"--packages: there is no package {package!r} ({place} has no Python files)")
        found.update(path.relative_to(root) for path in here)
    return sorted(path for path in found if not any(part in f"/{path}" for part in _LEFT_OUT))


def sample(root: Path, packages: Sequence[str], seed: int, count: int) -> list[Mutation]:
    """Choose mistakes at different lines, each line with the same probability; fewer if there are not enough lines.

    The first n of a larger sample with the same seed are the sample of n.
    """
    by_line: dict[tuple[str, int], list[Mutation]] = {}
    sources: dict[str, bytes] = {}
    for path in source_files(root, packages):
        name = str(path)
        sources[name] = (root / path).read_bytes()
        for mutation in find_mutations(name, sources[name]):
            by_line.setdefault((name, mutation.line), []).append(mutation)
    chance = random.Random(seed)
    lines = list(by_line)
    chance.shuffle(lines)
    chosen: list[Mutation] = []
    for line in lines:
        if len(chosen) == count:
            break
        here = by_line[line]
        chance.shuffle(here)
        chosen += [item for item in here if item.changes_program(sources[item.file])][:1]
    return chosen


def same_places(root: Path, packages: Sequence[str], trials: Sequence[Mapping[str, str]]) -> list[Mutation]:
    """Find the mistakes of a report again: same function, same kind, same change of the same text.

    A place that moved to another file counts if it is unique. Places that no longer exist are omitted.
    """
    found: dict[tuple[str, ...], dict[str, Mutation]] = {}
    for path in source_files(root, packages):
        source = (root / path).read_bytes()
        for mutation in find_mutations(str(path), source):
            key = (mutation.function, mutation.operator, *changed_lines(mutation.diff(source)))
            found.setdefault(key, {}).setdefault(mutation.file, mutation)
    again = []
    for trial in trials:
        here = found.get((trial["function"], trial["operator"], *changed_lines(trial["diff"])), {})
        if trial["file"] in here:
            again.append(here[trial["file"]])
        elif len(here) == 1:
            again += here.values()
    return again
