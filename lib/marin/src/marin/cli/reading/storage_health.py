"""Probe a storage prefix: write a small file there, read it and remove it."""

from __future__ import annotations

import os
import threading
import time
import uuid
from dataclasses import replace

from marin.cli.deciding.storage_health import PrefixFacts
from marin.full_disk import full_disk
from rigging.extras import MissingExtra
from rigging.filesystem import marin_region, open_url, region_from_prefix, url_to_fs

_CONTENT = "marin doctor"
_ROOM = "free space there, or choose another place"


def look_at_prefix(prefix: str, is_default: bool, within_s: float = 30.0) -> PrefixFacts:
    """Write, read and remove a file with a unique name, and return the observations.

    Args:
        prefix: The storage root.
        is_default: Whether the prefix is the fallback.
        within_s: Seconds after which storage without an answer counts as failed; storage clients retry for minutes.
    """
    facts = PrefixFacts(prefix, is_default, region_from_prefix(prefix), marin_region())
    found: list[PrefixFacts] = []
    thread = threading.Thread(target=lambda: found.append(_round_trip(facts)), daemon=True)
    thread.start()
    thread.join(within_s)
    silent = replace(facts, error=f"no answer within {within_s:g} s", remedy="check the network and the endpoint")
    return found[0] if found else silent


def _round_trip(facts: PrefixFacts) -> PrefixFacts:
    begun = time.monotonic()
    url = f"{facts.prefix}/.marin-doctor-{uuid.uuid4().hex}"
    try:
        with open_url(url, "w") as file:
            file.write(_CONTENT)
        with open_url(url, "r") as file:
            read = file.read()
        fs, path = url_to_fs(url)
        fs.rm_file(path)
    except MissingExtra as error:
        why, _, remedy = str(error).rpartition(": ")
        return replace(facts, error=why, remedy=remedy)
    except Exception as error:  # whatever a store's client raises
        words = str(error).strip().splitlines() or [type(error).__name__]
        full = full_disk(error, facts.prefix)
        return replace(facts, error=words[0] if full is None else full, remedy="" if full is None else _ROOM)
    if read != _CONTENT:
        return replace(facts, error=f"{os.path.basename(url)} was read back with different content")
    return replace(facts, round_trip_s=time.monotonic() - begun)
