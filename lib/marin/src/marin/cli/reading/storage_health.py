"""Probe a storage prefix: write a small file there, read it and remove it."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import replace

from marin.cli.deciding.storage_health import PrefixFacts
from rigging.filesystem import marin_region, open_url, region_from_prefix, url_to_fs

_CONTENT = "marin doctor"


def look_at_prefix(prefix: str, is_default: bool) -> PrefixFacts:
    """Write, read and remove a file with a unique name, and return the observations."""
    facts = PrefixFacts(
        prefix,
        is_default,
        region_from_prefix(prefix),
        marin_region(),
    )
    begun = time.monotonic()
    url = f"{prefix}/.marin-doctor-{uuid.uuid4().hex}"
    try:
        with open_url(url, "w") as file:
            file.write(_CONTENT)
        with open_url(url, "r") as file:
            read = file.read()
        fs, path = url_to_fs(url)
        fs.rm_file(path)
    except Exception as error:  # whatever a store's client raises
        words = str(error).strip().splitlines() or [type(error).__name__]
        return replace(facts, error=words[0])
    if read != _CONTENT:
        return replace(facts, error=f"{os.path.basename(url)} was read back with different content than was written")
    return replace(facts, round_trip_s=time.monotonic() - begun)
