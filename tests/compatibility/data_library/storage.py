"""Files of datasets, and the intermediate ones between two stages."""

import hashlib
import json
import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from rigging.filesystem import open_url, url_to_fs

BATCH = 1000


def glob(pattern: str) -> list[str]:
    """The paths that match, sorted."""
    fs, path = url_to_fs(pattern)
    return sorted(fs.unstrip_protocol(found) for found in fs.glob(path))


def remove(folder: str) -> None:
    """Remove what was written below `folder`, if anything was."""
    fs, path = url_to_fs(folder)
    with suppress(FileNotFoundError):
        fs.rm(path, recursive=True)


def read_lines(path: str) -> Iterator[str]:
    with open_url(path, "rt", compression="infer") as file:
        for line in file:
            yield line.rstrip("\n")


def read_jsonl(path: str) -> Iterator[Any]:
    return map(json.loads, filter(None, read_lines(path)))


def write_jsonl(path: str, records: Iterable[Any]) -> None:
    """Write a file that is there whole or not at all, as two attempts may write it."""
    partial = f"{path}.{uuid.uuid4().hex[:8]}.partial"
    with open_url(partial, "wt", compression="gzip" if path.endswith(".gz") else None) as file:
        for record in records:
            file.write(json.dumps(record, sort_keys=True) + "\n")
    fs, source = url_to_fs(partial)
    fs.mv(source, url_to_fs(path)[1])


def text_of(key: Any) -> str:
    """The same in every process, and by it keys are ordered."""
    return json.dumps(key, sort_keys=True, default=repr)


def partition_of(key: Any, partitions: int) -> int:
    return int.from_bytes(hashlib.md5(text_of(key).encode()).digest()[:8], "big") % partitions


def write_parts(folder: str, parts: dict[int, list[Any]]) -> dict[int, str]:
    """Write each partition's records to a file of its own; return the paths."""
    paths = {}
    for partition, records in sorted(parts.items()):
        paths[partition] = f"{folder}/{partition:05d}.pkl"
        with open_url(paths[partition], "wb") as file:
            for start in range(0, len(records), BATCH):
                pickle.dump(records[start : start + BATCH], file)
    return paths


def read_parts(paths: Sequence[str]) -> Iterator[Any]:
    for path in paths:
        with open_url(path, "rb") as file, suppress(EOFError):
            while True:
                yield from pickle.load(file)
