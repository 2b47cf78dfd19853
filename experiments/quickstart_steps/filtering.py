"""Keep the documents whose attributes are within bounds, and hold some of them out for the evaluation."""

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.quickstart_steps.quality import attributes_by_id
from experiments.quickstart_steps.storage import Row, read_rows, stable_order, write_json, write_rows
from rigging.errors import InvalidRequest


@dataclass(frozen=True)
class FilterConfig:
    """The settings of the filter.

    Attributes:
        documents: Files of documents.
        attributes: Folders of the attribute steps.
        bounds: The minimum and maximum of each attribute.
        heldout: Share of the kept documents to hold out, above 0 and below 1.
        seed: Random seed of the choice of held-out documents.
        output_path: Receives `train.jsonl`, `heldout.jsonl`, and `removed.jsonl` with the reasons.
    """

    documents: Sequence[str]
    attributes: Sequence[str]
    bounds: Mapping[str, tuple[float, float]]
    heldout: float
    seed: int
    output_path: str


def out_of_bounds(attributes: Row, bounds: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the attributes that are out of bounds.

    Raises:
        InvalidRequest: An attribute does not exist.
    """
    for name in bounds:
        if name not in attributes:
            known = ", ".join(sorted(set(attributes) - {"id"}))
            raise InvalidRequest(f"filter: there is no attribute {name!r}; there are {known}")
    return [name for name, (least, greatest) in bounds.items() if not least <= attributes[name] <= greatest]


def filter_documents(config: FilterConfig) -> None:
    """Split the documents into training, held-out and removed documents.

    Raises:
        InvalidRequest: `heldout` is out of range, or fewer than two documents remain.
    """
    if not 0 < config.heldout < 1:
        raise InvalidRequest(f"heldout {config.heldout} is not above 0 and below 1")
    attributes = attributes_by_id(config.attributes)
    kept, removed = [], []
    reasons: Counter[str] = Counter()
    for document in (row for path in config.documents for row in read_rows(path)):
        wrong = out_of_bounds(attributes[document["id"]], config.bounds)
        reasons.update(wrong)
        if wrong:
            removed.append({**attributes[document["id"]], "out_of_bounds": wrong})
        else:
            kept.append({**document, "quality": attributes[document["id"]]["quality"]})
    if len(kept) < 2:
        why = ", ".join(f"{name}: {count}" for name, count in reasons.most_common()) or "none"
        raise InvalidRequest(
            f"the filter leaves {len(kept)} of {len(kept) + len(removed)} documents, but training and evaluation need "
            f"2; documents out of bounds by attribute: {why}. Give more pages, or change BOUNDS"
        )
    kept.sort(key=lambda row: stable_order(config.seed, row["id"]))
    aside = math.ceil(len(kept) * config.heldout)
    aside = min(aside, len(kept) - 1)
    for name, rows in (("heldout", kept[:aside]), ("train", kept[aside:]), ("removed", removed)):
        path = os.path.join(config.output_path, f"{name}.jsonl")
        write_rows(path, sorted(rows, key=lambda row: str(row["id"])))
    stats = {
        "documents": len(kept) + len(removed),
        "train": len(kept) - aside,
        "heldout": aside,
        "removed": len(removed),
        "out_of_bounds": dict(sorted(reasons.items())),
        "train_bytes": _size(kept[aside:]),
        "heldout_bytes": _size(kept[:aside]),
    }
    write_json(os.path.join(config.output_path, "stats.json"), stats)


def _size(documents: Sequence[Row]) -> int:
    return sum(len(row["text"].encode()) for row in documents)
