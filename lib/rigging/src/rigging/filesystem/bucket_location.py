"""Locations of buckets: queried once, and compared with regions."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from rigging.errors import NotFound, Unavailable
from rigging.filesystem.region import region_from_prefix
from rigging.process.fork_lock import ForkLock

logger = logging.getLogger(__name__)

#: How long, in seconds, it is remembered that a bucket's location could not be learned.
UNKNOWN_FOR_SECONDS = 300.0

_MULTI_REGIONS: Final = {"us": ("us-",), "eu": ("europe-",), "asia": ("asia-",)}
# https://cloud.google.com/storage/docs/locations#predefined
_DUAL_REGIONS: Final = {
    "nam4": ("us-central1", "us-east1"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "asia1": ("asia-northeast1", "asia-northeast2"),
}


def same_place(one: str, other: str) -> bool:
    """Return whether two locations of buckets or machines are one place: equal, or one is a multi-region that contains
    the other.

    The continent-wide "us", "eu" and "asia" contain all of their regions; a dual region such as "nam4" contains its
    two.
    """
    one, other = one.lower(), other.lower()
    return one == other or _contains(one, other) or _contains(other, one)


def _contains(location: str, region: str) -> bool:
    return region.startswith(_MULTI_REGIONS.get(location, ())) or region in _DUAL_REGIONS.get(location, ())


def bucket_info(bucket: str) -> Mapping[str, Any]:
    """Return the metadata of a GCS bucket. Raise the errors of the store's client."""
    import fsspec

    info: Mapping[str, Any] = fsspec.filesystem("gs").info(bucket)
    return info


_asking = ForkLock()


class BucketLocations:
    """Known locations, by bucket; thread-safe.

    Args:
        ask: Returns the metadata of a bucket.
        monotonic: A monotonic clock in seconds.
    """

    def __init__(
        self,
        ask: Callable[[str], Mapping[str, Any]] = bucket_info,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._known: dict[str, str] = {}
        self._unknown_until: dict[str, float] = {}

    def named(self, bucket: str) -> str | None:
        """Return the location in the name (`marin-...` buckets) or learned earlier, else None."""
        return self._known.get(bucket) or region_from_prefix(f"gs://{bucket}")

    def is_known_unknown(self, bucket: str) -> bool:
        """Return whether a query failed a short while ago."""
        return self._unknown_until.get(bucket, 0.0) > self._monotonic()

    def learn(self, bucket: str, info: Mapping[str, Any] | None, error: BaseException | None = None) -> str | None:
        """Record and return the location in the bucket's metadata.

        An unknown location (no metadata, or none in it) is logged, and cached for a while.

        Args:
            bucket: The bucket's name, without a scheme.
            info: Its metadata; None if they are not available.
            error: Why they are not available.
        """
        location = (info or {}).get("location")
        if not isinstance(location, str) or not location:
            logger.warning(
                "the location of gs://%s is unknown (%s): its bytes count as crossing", bucket, error or info
            )
            self._unknown_until[bucket] = self._monotonic() + UNKNOWN_FOR_SECONDS
            return None
        self._known[bucket] = location.lower()
        return self._known[bucket]

    def location(self, bucket: str) -> str:
        """Return a bucket's location, querying it if it is not known. Raise like `get_bucket_location`."""
        known = self.named(bucket)
        if known is not None:
            return known
        with _asking:
            location = self.named(bucket)
            if location is None and not self.is_known_unknown(bucket):
                location = self._asked(bucket)
        if location is None:
            raise Unavailable(
                f"the location of gs://{bucket} is not known: this account may not read the bucket's metadata "
                "(storage.buckets.get), or the store could not be reached"
            )
        return location

    def _asked(self, bucket: str) -> str | None:
        try:
            info = self._ask(bucket)
        except FileNotFoundError:
            raise NotFound(f"gs://{bucket}: there is no such bucket, or this account may not see it") from None
        except Exception as error:  # whatever the store's client raises: no network, no credentials, not installed
            self.learn(bucket, None, error)
            raise Unavailable(f"the location of gs://{bucket} cannot be queried: {error}") from error
        return self.learn(bucket, info)

    def forget(self) -> None:
        """Forget all locations."""
        self._known.clear()
        self._unknown_until.clear()


#: Locations that this process has learned.
BUCKET_LOCATIONS = BucketLocations()


def get_bucket_location(bucket_or_path: str) -> str:
    """Return the location of a GCS bucket in lower case, such as "us-central2" or the multi-region "us".

    `marin-{region}` buckets are known by name. Others are queried once per process; after a failure, again after
    `UNKNOWN_FOR_SECONDS`.

    Args:
        bucket_or_path: A bucket's name, or any gs:// path in it.

    Raises:
        NotFound: The bucket does not exist.
        Unavailable: The store cannot be reached, or this account may not read the bucket's metadata. The cause is the
            client library's error, if there is one.
    """
    return BUCKET_LOCATIONS.location(bucket_or_path.removeprefix("gs://").removeprefix("gcs://").partition("/")[0])
