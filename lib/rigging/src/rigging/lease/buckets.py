"""Buckets by URL: the objects of GCS and S3, each loaded on first use."""

import functools
import os

from rigging.errors import InvalidRequest
from rigging.filesystem.location import Url, url_scheme
from rigging.lease.objects import ConditionalObjects


def bucket_objects(url: Url) -> tuple[ConditionalObjects, str] | None:
    """Return the objects of the bucket in a gs:// or s3:// URL, and the key there; None for any other URL.

    Raises:
        InvalidRequest: The URL names no object.
    """
    scheme = url_scheme(url)
    if scheme not in ("gs", "gcs", "s3", "s3a"):
        return None
    bucket, _, key = os.fspath(url).partition("://")[2].partition("/")
    if not bucket or not key or key.endswith("/"):
        raise InvalidRequest(f"lease {os.fspath(url)!r}: must name an object, {scheme}://bucket/key")
    return _objects_of(scheme.startswith("g"), bucket), key


@functools.lru_cache(maxsize=64)
def _objects_of(is_gcs: bool, bucket: str) -> ConditionalObjects:
    # Imported here: most leases are local files, and imports of this package are to be quick.
    if is_gcs:
        from rigging.lease.gcs import GcsObjects

        return GcsObjects(bucket)
    from rigging.lease.s3 import S3Objects

    return S3Objects(bucket)
