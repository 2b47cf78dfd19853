"""Whether bytes cross regions: the question that the guard asks before each read."""

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
    """Return the region that reads are charged against, None when it is unknown: then nothing crosses."""
    return marin_region()


def bytes_cross(location: str | None, region: str) -> bool:
    """Say whether bytes from a bucket at `location` to `region` cross regions; an unknown location does."""
    return location is None or not same_place(location, region)


def is_paid_for(what: str, region: str) -> bool:
    """Say whether someone has taken over the cost of reading `what` from another region; their name is logged."""
    payer = os.environ.get(MARIN_CROSS_REGION_OVERRIDE_ENV, "").strip()
    if not payer:
        return False
    if (payer, what, region) not in _told:
        _told.add((payer, what, region))
        logger.warning("reading %s from %s across regions without a budget: %s pays all fees", what, region, payer)
    return True


def record_transfer(size: int, url: Url, *, budget: TransferBudget | None = None) -> None:
    """Count bytes that a program of the user's own moves between this machine and `url`, if they cross regions.

    Nothing is charged for local paths, for a place in this region, where either region is not known, or when all
    fees are paid by someone: programs call this for every checkpoint that they write.

    Args:
        size: Bytes.
        url: Where they come from or go to.
        budget: What is charged; None for the budget in force.

    Raises:
        TransferBudgetExceeded: They do not fit; they are not counted.
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
    """Return the region that the table of prefixes gives a bucket that is not on GCS, or None.

    The bucket of the local prefix is where this machine is.
    """
    from rigging.filesystem.prefix_table import local_prefix, mirror_prefixes

    local = local_prefix()
    for prefix in (local, *mirror_prefixes()):
        if url_scheme(prefix.url) == protocol and prefix.url.partition("://")[2].partition("/")[0] == bucket:
            return prefix.region or (marin_region() if prefix.url == local.url else None)
    return None
