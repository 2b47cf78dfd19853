"""Read and write rows and values as files, atomically, on any storage."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from rigging.filesystem import atomic_write, open_url

Row = dict[str, Any]


def write_rows(path: str, rows: Iterable[Row]) -> None:
    """Write one JSON object per line. Equal rows give equal bytes."""
    with atomic_write(path, "w") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n")


def read_rows(path: str) -> list[Row]:
    """Return the objects of a file with one JSON object per line."""
    with open_url(path, "rb") as file:
        # Not splitlines(): that would also split at other characters than "\n", which JSON leaves as they are.
        return [json.loads(line) for line in file.read().decode().split("\n") if line]


def write_json(path: str, value: Any) -> None:
    """Write a value as indented JSON."""
    with atomic_write(path, "w") as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n")


def read_json(path: str) -> Any:
    """Return the value of a JSON file."""
    with open_url(path, "rb") as file:
        return json.loads(file.read())


def read_shards(folders: Sequence[str], name: str) -> list[Row]:
    """Return the rows of the files `name` in several folders, sorted by id."""
    rows = [row for folder in folders for row in read_rows(os.path.join(folder, name))]
    return sorted(rows, key=lambda row: str(row["id"]))


def read_bytes(path: str) -> bytes:
    """Return a file's content."""
    with open_url(path, "rb") as file:
        content: bytes = file.read()
    return content


def sha256(data: bytes) -> str:
    """Return the digest of a file's content, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def stable_order(seed: int, identifier: str) -> str:
    """Return a sort key that depends only on the seed and the document's id."""
    return hashlib.sha256(f"{seed}\0{identifier}".encode()).hexdigest()
