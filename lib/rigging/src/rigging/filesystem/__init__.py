"""Storage: the prefix, regions, and opening, reading and writing URLs."""

from rigging.filesystem.atomic import TEMPORARY_PREFIX, atomic_write, read_bytes_or_none, write_bytes_atomic
from rigging.filesystem.budget import (
    GB,
    Reservation,
    TransferBudget,
    TransferBudgetExceeded,
    budget_environment,
    current_budget,
    mirror_budget,
    record_transfer,
)
from rigging.filesystem.location import OBJECT_STORE_PROTOCOLS, local_path, url_scheme
from rigging.filesystem.opening import filesystem, open_url, url_to_fs
from rigging.filesystem.prefix import collect_gcs_paths, marin_prefix, marin_temp_bucket, split_gcs_path
from rigging.filesystem.region import (
    REGION_TO_DATA_BUCKET,
    data_bucket,
    marin_region,
    region_from_metadata,
    region_from_prefix,
)

__all__ = [
    "GB",
    "OBJECT_STORE_PROTOCOLS",
    "REGION_TO_DATA_BUCKET",
    "TEMPORARY_PREFIX",
    "Reservation",
    "TransferBudget",
    "TransferBudgetExceeded",
    "atomic_write",
    "budget_environment",
    "collect_gcs_paths",
    "current_budget",
    "data_bucket",
    "filesystem",
    "local_path",
    "marin_prefix",
    "marin_region",
    "marin_temp_bucket",
    "mirror_budget",
    "open_url",
    "read_bytes_or_none",
    "record_transfer",
    "region_from_metadata",
    "region_from_prefix",
    "split_gcs_path",
    "url_scheme",
    "url_to_fs",
    "write_bytes_atomic",
]
