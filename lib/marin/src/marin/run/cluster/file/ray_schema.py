"""Mistakes in a Ray cluster file by Ray's own schema, which `ray up` checks too late for `--dry-run`."""

import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_TYPES: Final = "available_node_types"


def schema_mistakes(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the mistakes: place (a key of the file, or a worker type) and message; none when Ray is not installed."""
    # Ray itself takes a second to import.
    ray = importlib.util.find_spec("ray")
    if ray is None or ray.origin is None:
        return
    import jsonschema  # type: ignore[import-untyped]

    schema = json.loads((Path(ray.origin).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8"))
    for error in jsonschema.Draft7Validator(schema).iter_errors(config):
        path = [str(part) for part in error.absolute_path]
        if path[:1] == [_TYPES] and len(path) > 1:
            del path[0]  # a worker type goes by its own name
        place = ".".join(path)
        # What is wrong can be a whole section of the file.
        said = error.message if len(error.message) < 200 else f"it fails Ray's {error.validator!r}"
        yield path[0] if path else "", f"{place}: {said}" if place else said
