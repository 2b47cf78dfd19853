"""The regions in which the current cluster has accelerators."""

from __future__ import annotations

from collections.abc import Sequence


def infer_tpu_variant_regions_from_iris(variants: Sequence[str]) -> list[str] | None:
    """Return the regions, sorted, in which the current cluster has every one of these variants.

    Args:
        variants: Such as "v5p-8".

    Returns:
        None where that is not known: without a cluster, on one that does not tell, and where none has them all.
    """
    from fray.client import TellsRegions
    from fray.current_client import current_client

    client = current_client()
    if not variants or not isinstance(client, TellsRegions):
        return None
    return client.accelerator_regions(variants) or None
