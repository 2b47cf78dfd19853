"""Count the words of 10,000 files, one call per file.

python -m experiments.examples.map_files                       # in this process
iris job run -- python -m experiments.examples.map_files       # on an Iris cluster
"""

import os
import time
from collections import Counter

import fray
from fray import ResourceConfig
from rigging.filesystem import marin_prefix, open_url

FILES = int(os.environ.get("MAP_FILES", "10000"))
SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="64m")
WORDS = ("storm", "harbour", "lamp", "rope", "tide")


def write_files(root: str) -> list[str]:
    """Write the input files and return their paths."""
    paths = []
    for number in range(FILES):
        path = os.path.join(root, f"{number % 100:02}", f"{number:05}.txt")
        with open_url(path, "w") as file:
            file.write(" ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 12)))
        paths.append(path)
    return paths


def count_words(path: str) -> Counter[str]:
    """Count the occurrences of each word in one file."""
    with open_url(path, "r") as file:
        return Counter(file.read().split())


def main() -> None:
    """Write the files, count their words, and print the total."""
    paths = write_files(os.path.join(marin_prefix(), "examples", "map_files"))
    total: Counter[str] = Counter()
    begun = time.monotonic()
    # `ordered=False` takes each result as soon as its call ends.
    results = fray.map(count_words, paths, max_in_flight=64, resources=SMALL, ordered=False)
    for done, counted in enumerate(results, 1):
        total += counted
        if done % (len(paths) // 5) == 0:
            print(f"{done:6,} of {len(paths):,} files after {time.monotonic() - begun:.1f} s", flush=True)
    for word, times in sorted(total.items()):
        print(f"{word:8} {times:7,}")


if __name__ == "__main__":
    main()
