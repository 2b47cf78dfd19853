"""Storage: the prefix, regions, and opening, reading and writing URLs."""

import importlib
from typing import TYPE_CHECKING

from rigging.filesystem.atomic import (
    TEMPORARY_PREFIX,
    atomic_write,
    read_bytes_or_none,
    upload_file,
    write_bytes_atomic,
)
from rigging.filesystem.bucket_location import get_bucket_location
from rigging.filesystem.budget import (
    GB,
    MARIN_MIRROR_BUDGET_ENV,
    Reservation,
    TransferBudget,
    TransferBudgetExceeded,
    budget_environment,
    current_budget,
    mirror_budget,
    reset_mirror_budget,
    set_mirror_budget,
)
from rigging.filesystem.gcs_paths import (
    check_gcs_paths_same_region,
    check_path_in_region,
    collect_gcs_paths,
    split_gcs_path,
)
from rigging.filesystem.location import OBJECT_STORE_PROTOCOLS, local_path, url_scheme
from rigging.filesystem.opening import filesystem, open_url, url_to_fs
from rigging.filesystem.prefix import (
    ALLOWED_TTL_DAYS,
    TEMP_PATH_PREFIX,
    absolute_prefix,
    marin_prefix,
    marin_temp_bucket,
)
from rigging.filesystem.region import (
    REGION_TO_DATA_BUCKET,
    data_bucket,
    marin_region,
    region_from_metadata,
    region_from_prefix,
)
from rigging.filesystem.region_check import MARIN_CROSS_REGION_OVERRIDE_ENV, record_transfer

if TYPE_CHECKING:
    from rigging.filesystem.guard import CrossRegionGuardedFS
    from rigging.mirror.fs import MirrorFileSystem
    from rigging.mirror.prefetch import mirror_plan, mirror_prefetch

# The guard stands on fsspec, the mirror on leases too, which stand on this package: loaded when first asked for.
_LAZY = {
    "CrossRegionGuardedFS": "rigging.filesystem.guard",
    "MirrorFileSystem": "rigging.mirror.fs",
    "mirror_plan": "rigging.mirror.prefetch",
    "mirror_prefetch": "rigging.mirror.prefetch",
}

__all__ = [
    "ALLOWED_TTL_DAYS",
    "GB",
    "MARIN_CROSS_REGION_OVERRIDE_ENV",
    "MARIN_MIRROR_BUDGET_ENV",
    "OBJECT_STORE_PROTOCOLS",
    "REGION_TO_DATA_BUCKET",
    "TEMPORARY_PREFIX",
    "TEMP_PATH_PREFIX",
    "CrossRegionGuardedFS",
    "MirrorFileSystem",
    "Reservation",
    "TransferBudget",
    "TransferBudgetExceeded",
    "absolute_prefix",
    "atomic_write",
    "budget_environment",
    "check_gcs_paths_same_region",
    "check_path_in_region",
    "collect_gcs_paths",
    "current_budget",
    "data_bucket",
    "filesystem",
    "get_bucket_location",
    "local_path",
    "marin_prefix",
    "marin_region",
    "marin_temp_bucket",
    "mirror_budget",
    "mirror_plan",
    "mirror_prefetch",
    "open_url",
    "read_bytes_or_none",
    "record_transfer",
    "region_from_metadata",
    "region_from_prefix",
    "reset_mirror_budget",
    "set_mirror_budget",
    "split_gcs_path",
    "upload_file",
    "url_scheme",
    "url_to_fs",
    "write_bytes_atomic",
]


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
