"""The prefix: the storage root of all output paths, and paths derived from it."""

import contextlib
import os

from rigging.errors import InvalidRequest
from rigging.filesystem.location import OBJECT_STORE_PROTOCOLS, local_path, url_scheme
from rigging.filesystem.region import data_bucket, marin_region, region_from_metadata, region_from_prefix

_LOCAL_PREFIX = "/tmp/marin"
#: Where temporary data lies below a storage root.
TEMP_PATH_PREFIX = "tmp"
#: Lifetimes in days for which the buckets have a deletion rule.
ALLOWED_TTL_DAYS = (1, 2, 3, 4, 5, 6, 7, 14, 30)


def marin_prefix() -> str:
    """Return the storage root: MARIN_PREFIX, else the region's bucket on a GCP VM, else /tmp/marin. Each call reads the
    environment. The result is absolute, without a trailing slash.
    """
    configured = os.environ.get("MARIN_PREFIX", "").strip()
    if configured:
        return _without_trailing_slash(absolute_prefix(configured))
    region = region_from_metadata()
    return f"gs://{data_bucket(region)}" if region else _LOCAL_PREFIX


def absolute_prefix(prefix: str) -> str:
    """Return a storage root that means the same in every process: local paths become absolute, URLs stay unchanged.

    Raises:
        InvalidRequest: `prefix` is empty, or a URL of an unsupported kind.
    """
    if not prefix.strip():
        raise InvalidRequest(f"prefix={prefix!r}: empty; give a path or a URL such as gs://bucket/experiments")
    _check_scheme(prefix)
    is_plain_path = "://" not in prefix and not prefix.startswith("/") and "::" not in prefix
    local = local_path(prefix) if is_plain_path else None
    return prefix if local is None else local


def _check_scheme(prefix: str) -> None:
    scheme = url_scheme(prefix)
    if scheme == "file" or scheme in OBJECT_STORE_PROTOCOLS or "::" in prefix:
        return
    from fsspec import get_filesystem_class

    # An ImportError is told where storage is opened: that kind is known, and its package is not installed.
    with contextlib.suppress(ImportError):
        try:
            get_filesystem_class(scheme)
        except ValueError:
            raise InvalidRequest(
                f"prefix={prefix!r}: nothing here opens {scheme}:// URLs; give a path or a URL such as "
                "gs://bucket/experiments"
            ) from None


def marin_temp_bucket(ttl_days: float, prefix: str = "", *, source_prefix: str | None = None) -> str:
    """Return a URL for data that may be deleted after `ttl_days` days.

    Args:
        ttl_days: Lifetime in days: rounded up to one of 1-7, 14, 30, and 30 if longer.
        prefix: The path below the temporary root.
        source_prefix: A storage root whose bucket or region to use, instead of this machine's.

    Returns:
        `gs://{bucket}/tmp/ttl={N}d/{prefix}` if the region is known, else `{storage root as URL}/tmp/{prefix}`.

    Raises:
        InvalidRequest: `ttl_days` is below 1, or `prefix` leads out of the temporary root.
    """
    if not ttl_days >= 1:
        raise InvalidRequest(f"ttl_days={ttl_days}: must be at least 1")
    if ".." in prefix.split("/"):
        raise InvalidRequest(f"prefix={prefix!r}: '..' would leave the temporary root")
    lifetime = next((days for days in ALLOWED_TTL_DAYS if days >= ttl_days), ALLOWED_TTL_DAYS[-1])
    region = region_from_prefix(source_prefix) if source_prefix else marin_region()
    if region:
        root = f"gs://{data_bucket(region)}/{TEMP_PATH_PREFIX}/ttl={lifetime}d"
    else:
        base = _without_trailing_slash(source_prefix or marin_prefix())
        path = local_path(base)
        root = f"{base if path is None else f'file://{path}'}/{TEMP_PATH_PREFIX}"
    return f"{root}/{prefix.strip('/')}".rstrip("/")


def _without_trailing_slash(prefix: str) -> str:
    stripped = prefix.rstrip("/")
    return prefix if not stripped or stripped.endswith(":") else stripped
