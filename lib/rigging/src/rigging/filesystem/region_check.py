"""Decide whether bytes cross regions. The guard calls this before each read."""

import logging
import os
from typing import Final

from rigging.errors import NotFound, Unavailable
from rigging.filesystem.bucket_location import get_bucket_location, same_place
from rigging.filesystem.budget import TransferBudget, current_budget
from rigging.filesystem.location import OBJECT_STORE_PROTOCOLS, Url, url_scheme
from rigging.filesystem.region import marin_region

logger = logging.getLogger(__name__)

#: Names someone who takes over the cost; then nothing is charged.
MARIN_CROSS_REGION_OVERRIDE_ENV: Final = "MARIN_I_WILL_PAY_FOR_ALL_FEES"
#: Stores in some region or other; everything else is passed through by the guard.
REGIONAL_PROTOCOLS: Final = OBJECT_STORE_PROTOCOLS - {"memory"}
GCS_PROTOCOLS: Final = frozenset({"gs", "gcs"})

_told: set[tuple[str, str, str]] = set()


def guarded_region() -> str | None:
    """Return the region that reads are charged against; None if it is unknown, so no read is charged."""
    return marin_region()


def bytes_cross(location: str | None, region: str) -> bool:
    """Return whether a read from a bucket at `location` crosses regions to `region`: yes if the location is unknown."""
    return location is None or not same_place(location, region)


def is_paid_for(what: str, region: str) -> bool:
    """Return whether somebody agreed to pay for reading `what` from another region, and log their name."""
    payer = os.environ.get(MARIN_CROSS_REGION_OVERRIDE_ENV, "").strip()
    if not payer:
        return False
    if (payer, what, region) not in _told:
        _told.add((payer, what, region))
        logger.warning("reading %s from %s across regions without a budget: %s pays all fees", what, region, payer)
    return True


def record_transfer(size: int, url: Url, *, budget: TransferBudget | None = None) -> None:
    """Charge bytes that a user's own program moves between this machine and `url`, if they cross regions.

    Programs call this for every checkpoint that they write. Local paths, URLs in this region, unknown regions and
    transfers that somebody agreed to pay for are free.

    Args:
        size: The number of bytes.
        url: The source or destination.
        budget: The budget to charge; None for the current one.

    Raises:
        TransferBudgetExceeded: The bytes do not fit, and are not counted.
    """
    if size <= 0:
        return
    scheme = url_scheme(url)
    region = guarded_region() if scheme in REGIONAL_PROTOCOLS else None
    if region is None:
        return
    place = _known_place(scheme, os.fspath(url))
    if place is None or not bytes_cross(place, region) or is_paid_for(os.fspath(url), region):
        return
    (budget or current_budget()).record(size, os.fspath(url))


def _known_place(scheme: str, url: str) -> str | None:
    bucket = url.partition("://")[2].partition("/")[0]
    if scheme not in GCS_PROTOCOLS:
        return configured_region(scheme, bucket)
    try:
        return get_bucket_location(bucket)
    except (NotFound, Unavailable):
        return None


def configured_region(protocol: str, bucket: str) -> str | None:
    """Return the region of a bucket off GCS in the table of prefixes, or None.

    The local prefix's bucket counts as local to this machine.
    """
    from rigging.filesystem.prefix_table import local_prefix, mirror_prefixes

    local = local_prefix()
    for prefix in (local, *mirror_prefixes()):
        if url_scheme(prefix.url) == protocol and prefix.url.partition("://")[2].partition("/")[0] == bucket:
            return prefix.region or (marin_region() if prefix.url == local.url else None)
    return None
