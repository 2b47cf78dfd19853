"""Remove exact and near duplicates of documents."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from experiments.quickstart_steps.extras import needs_extra
from experiments.quickstart_steps.storage import Row, read_shards, sha256, write_json, write_rows
from rigging.errors import InvalidRequest

_PERMUTATIONS: Final = 128
# Bands of 4 rows find a pair of similarity 0.6 with a probability of 0.98, and every pair found is looked at in full.
_BANDS: Final = 32
_SEED: Final = 42
_LSH_THRESHOLD: Final = 0.5


@dataclass(frozen=True)
class UniqueConfig:
    """The criteria for duplicates.

    Attributes:
        folders: The folders with `documents.jsonl` of all shards.
        similarity: Minimum Jaccard similarity of the word sequences of duplicates, above 0 and at most 1.
        shingle: Number of words in a sequence.
        shards: Number of files to write.
        output_path: Receives `documents-00000.jsonl` and so on, and `duplicates.jsonl`, the list of duplicates.
    """

    folders: Sequence[str]
    similarity: float
    shingle: int
    shards: int
    output_path: str


def shingles(text: str, length: int) -> frozenset[str]:
    """Return all sequences of `length` consecutive words, in lower case. A shorter text is one sequence."""
    words = re.findall(r"\w+", text.lower())
    count = max(1, len(words) - length + 1)
    return frozenset(" ".join(words[start : start + length]) for start in range(count))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets, from 0 to 1; 1 for two empty sets."""
    either = len(one | other)
    return len(one & other) / either if either else 1.0


def split_duplicates(documents: Sequence[Row], similarity: float, shingle: int) -> tuple[list[Row], list[Row]]:
    """Keep the first document of each group of duplicates.

    Args:
        documents: The documents, with `id` and `text`, in order.
        similarity: Minimum similarity of duplicates.
        shingle: Number of words in each compared sequence.

    Returns:
        The documents to keep, and a row for each duplicate: `id`, `duplicate_of`, `kind` (exact, near) and
        `similarity`.
    """
    with needs_extra("removal of near-duplicates"):
        from rensa import RMinHash, RMinHashLSH  # pyright: ignore[reportAttributeAccessIssue]: it has no stubs

    by_digest: dict[str, str] = {}
    index = RMinHashLSH(threshold=_LSH_THRESHOLD, num_perm=_PERMUTATIONS, num_bands=_BANDS)
    kept: list[Row] = []
    kept_shingles: list[frozenset[str]] = []
    duplicates: list[Row] = []
    for document in documents:
        digest = sha256(" ".join(str(document["text"]).split()).encode())
        if digest in by_digest:
            duplicates.append(_duplicate(document, by_digest[digest], "exact", 1.0))
            continue
        sequences = shingles(str(document["text"]), shingle)
        sketch = RMinHash(num_perm=_PERMUTATIONS, seed=_SEED)
        sketch.update(sorted(sequences))
        candidates = sorted(index.query(sketch))
        near = [(jaccard(sequences, kept_shingles[key]), -key) for key in candidates]
        best, key = max(near, default=(0.0, 0))
        if best >= similarity:
            duplicates.append(_duplicate(document, str(kept[-key]["id"]), "near", best))
            continue
        by_digest[digest] = str(document["id"])
        index.insert(len(kept), sketch)
        kept.append(document)
        kept_shingles.append(sequences)
    return kept, duplicates


def remove_duplicates(config: UniqueConfig) -> None:
    """Write the documents without exact and near duplicates, in shards.

    Raises:
        InvalidRequest: `similarity` is out of range, or there are no documents.
    """
    if not 0 < config.similarity <= 1:
        raise InvalidRequest(f"similarity {config.similarity} is not above 0 and at most 1")
    documents = read_shards(config.folders, "documents.jsonl")
    if not documents:
        raise InvalidRequest("no page has any text; see rejected.jsonl of the text steps")
    kept, duplicates = split_duplicates(documents, config.similarity, config.shingle)
    for shard in range(config.shards):
        path = os.path.join(config.output_path, f"documents-{shard:05}.jsonl")
        write_rows(path, kept[shard :: config.shards])
    write_rows(os.path.join(config.output_path, "duplicates.jsonl"), duplicates)
    exact = sum(row["kind"] == "exact" for row in duplicates)
    stats = {
        "documents": len(documents),
        "exact_duplicates": exact,
        "near_duplicates": len(duplicates) - exact,
        "kept": len(kept),
    }
    write_json(os.path.join(config.output_path, "stats.json"), stats)


def _duplicate(document: Row, original: str, kind: str, similarity: float) -> Row:
    return {"id": document["id"], "duplicate_of": original, "kind": kind, "similarity": round(similarity, 4)}
