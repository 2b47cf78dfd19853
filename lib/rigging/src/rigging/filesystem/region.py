"""Regions: where this machine runs, and the bucket of each region."""

import functools
import logging
import os
import re
from collections.abc import Mapping

from rigging.gce_metadata import ask_metadata, metadata_host
from rigging.process.fork_lock import ForkLock

logger = logging.getLogger(__name__)

REGION_TO_DATA_BUCKET: dict[str, str] = {
    "us-central1": "marin-us-central1",
    "us-central2": "marin-us-central2",
    "us-east1": "marin-us-east1",
    "us-east5": "marin-us-east5",
    "us-west4": "marin-us-west4",
    "europe-west4": "marin-eu-west4",
}

_BUCKET = re.compile(
    r"marin-(?P<area>us|eu|europe|asia|northamerica|southamerica|australia|africa|me)"
    r"-(?P<place>(?:north|south|east|west|central|northeast|northwest|southeast|southwest)\d+)"
)
_DMI_PRODUCT_NAME = "/sys/class/dmi/id/product_name"
_METADATA_TIMEOUT_SECONDS = 0.5
_METADATA_ATTEMPTS = 2
_asking = ForkLock()


def data_bucket(region: str) -> str:
    """Return the name of the data bucket of `region`, e.g. "marin-us-central2"."""
    known = REGION_TO_DATA_BUCKET.get(region)
    if known is not None:
        return known
    area, _, place = region.partition("-")
    return f"marin-{'eu' if area == 'europe' else area}-{place}"


# Asked for each read, of a few prefixes and buckets.
@functools.lru_cache(maxsize=1024)
def region_from_prefix(prefix: str | None) -> str | None:
    """Return the region in a `gs://marin-...` prefix, or None."""
    if not prefix or not prefix.startswith(("gs://", "gcs://")):
        return None
    bucket = prefix.split("://", 1)[1].partition("/")[0]
    match = _BUCKET.fullmatch(bucket)
    if match is None:
        return None
    area = "europe" if match["area"] == "eu" else match["area"]
    return f"{area}-{match['place']}"


def region_from_metadata() -> str | None:
    """Return this machine's region from the GCP metadata server; None if it is not a GCP VM.

    The server is asked once per process, and only if the machine may be in GCP.
    """
    with _asking:
        return _region_of_this_machine()


def forget_metadata() -> None:
    """Ask the metadata server again at the next call (for tests, and after a live migration)."""
    with _asking:
        _region_of_this_machine.cache_clear()


def marin_region() -> str | None:
    """Return the region of this process: from the metadata server, else from MARIN_PREFIX.

    Return None if it is unknown. Then nothing counts as cross-region.
    """
    return region_from_metadata() or region_from_prefix(os.environ.get("MARIN_PREFIX"))


def may_be_gcp(environ: Mapping[str, str], product_name_file: str = _DMI_PRODUCT_NAME) -> bool:
    """Return whether to ask the metadata server: the firmware is Google's, or a server is configured."""
    if environ.get("GCE_METADATA_HOST"):
        return True
    try:
        with open(product_name_file, encoding="utf-8", errors="replace") as handle:
            return "Google" in handle.read()
    except OSError:
        return False


def fetch_zone(host: str, timeout: float = _METADATA_TIMEOUT_SECONDS) -> str:
    """Return the zone from the metadata server at `host` (name or name:port), e.g. "us-central2-b".

    Raises:
        OSError: The server cannot be reached within `timeout` seconds, or is not a metadata server.
    """
    return ask_metadata(host, "zone", timeout).value.rpartition("/")[2]


@functools.cache
def _region_of_this_machine() -> str | None:
    if not may_be_gcp(os.environ):
        return None
    host = metadata_host()
    for attempt in range(1, _METADATA_ATTEMPTS + 1):
        try:
            zone = fetch_zone(host)
        except OSError as error:
            logger.warning("region unknown: metadata server %s, attempt %d: %s", host, attempt, error)
            continue
        return zone.rpartition("-")[0] or None
    return None
