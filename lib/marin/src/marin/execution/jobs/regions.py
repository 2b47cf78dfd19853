"""The regions where the current cluster has accelerators."""

from __future__ import annotations

from collections.abc import Sequence


def infer_tpu_variant_regions_from_iris(variants: Sequence[str]) -> list[str] | None:
    """Return the sorted regions in which the current cluster has every one of these variants.

    Args:
        variants: Such as "v5p-8".

    Returns:
        The regions; None if they are unknown: without a cluster, or on one that does not report them.
    """
    from fray.client import TellsRegions
    from fray.current_client import current_client

    client = current_client()
    return sorted(client.accelerator_regions(variants)) if isinstance(client, TellsRegions) else None
