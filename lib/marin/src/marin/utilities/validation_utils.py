"""Provenance and sizes of datasets."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rigging.errors import InvalidRequest
from rigging.filesystem import write_bytes_atomic
from rigging.filesystem.location import path_in


@dataclass
class DocumentSummary:
    """The size of a document in bytes, as JSON and as text."""

    document_bytes: int
    text_bytes: int


@dataclass
class SummaryStatistics:
    """Count, mean and standard deviation."""

    count: int
    mean: float
    std: float


def get_size_bytes(blob: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(blob.encode())


def summarize_document(doc: Mapping[str, Any]) -> DocumentSummary:
    """Return the sizes of a document.

    Raises:
        InvalidRequest: One of the texts `id`, `source` and `text` is missing.
    """
    for name in ("id", "source", "text"):
        if not isinstance(doc.get(name), str):
            raise InvalidRequest(f"document {doc.get('id')!r}: {name}={doc.get(name)!r}; expected a text")
    return DocumentSummary(get_size_bytes(json.dumps(doc)), get_size_bytes(doc["text"]))


def write_provenance_json(output_path: str, metadata: dict[str, Any]) -> None:
    """Write `{output_path}/provenance.json`: `metadata` with the time added as `access_time`."""
    metadata["access_time"] = datetime.datetime.now(datetime.UTC).isoformat()
    content = json.dumps(metadata, indent=4, sort_keys=True)
    write_bytes_atomic(path_in(output_path, "provenance.json"), content.encode())


def compute_global_mean_std(
    shard_num_examples: Sequence[int], shard_means: Sequence[float], shard_stds: Sequence[float]
) -> SummaryStatistics:
    """Return the statistics of all examples, computed from those of their shards.

    Args:
        shard_num_examples: The number of examples of each shard.
        shard_means: The mean of each shard.
        shard_stds: The standard deviation of each shard.

    Raises:
        InvalidRequest: There are no examples.
    """
    count = sum(shard_num_examples)
    if count == 0:
        raise InvalidRequest("compute_global_mean_std: there are no examples")
    shards = list(zip(shard_num_examples, shard_means, shard_stds, strict=True))
    mean = sum(n * shard_mean for n, shard_mean, _ in shards) / count
    squares = sum(n * (std**2 + shard_mean**2) for n, shard_mean, std in shards) / count
    return SummaryStatistics(count, mean, math.sqrt(max(0.0, squares - mean**2)))
